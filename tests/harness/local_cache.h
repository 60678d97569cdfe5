/* local_cache.h - a shelf in a folder of its own, for unit tests: opened in setup, removed in
 * teardown. */
#ifndef TESTS_HARNESS_LOCAL_CACHE_H
#define TESTS_HARNESS_LOCAL_CACHE_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/cache/cache.h"
#include "common/os/newfile.h"

struct world {
    char dir[64];
    struct local_cache *local_cache;
    struct digest digest; /* of what a test is about */
};

static inline int local_cache_setup(void **state)
{
    struct world *w = NEW(struct world);

    snprintf(w->dir, sizeof w->dir, "/tmp/shelf.XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    assert_int_equal(local_cache_open(w->dir, &w->local_cache, NULL), 0);
    *state = w;
    return 0;
}

static inline int local_cache_teardown(void **state)
{
    struct world *w = *state;
    int rc;

    local_cache_close(&w->local_cache);
    rc = dir_remove_tree(w->dir, NULL);
    free(w);
    return rc;
}

/* As a pull leaves it. */
static inline void local_cache_put(struct world *w, struct slice bytes, struct digest *d)
{
    struct local_cache_sealing x;
    struct local_cache_sealing *const one = &x;
    char path[PATH_MAX];
    int fd;

    digest_of(bytes, d);
    local_cache_partial_path(w->local_cache, d, ".part", path);
    fd = open(path, O_RDWR | O_CREAT, 0644);
    assert_int_equal(write(fd, bytes.p, bytes.n), bytes.n);
    x = (struct local_cache_sealing){.key = *d, .digest = *d, .fd = fd};
    local_cache_seal(w->local_cache, &one, 1);
    assert_int_equal(x.rc, 0);
    close(fd);
}

#endif
