/* shelf.h - a shelf in a folder of its own, for unit tests: opened in setup, removed in
 * teardown. */
#ifndef TESTS_HARNESS_SHELF_H
#define TESTS_HARNESS_SHELF_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/shelf/shelf.h"
#include "common/os/newfile.h"

struct world {
    char dir[64];
    struct shelf *shelf;
    struct digest digest; /* of what a test is about */
};

static inline int shelf_setup(void **state)
{
    struct world *w = NEW(struct world);

    snprintf(w->dir, sizeof w->dir, "/tmp/shelf.XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    assert_int_equal(shelf_open(w->dir, &w->shelf, NULL), 0);
    *state = w;
    return 0;
}

static inline int shelf_teardown(void **state)
{
    struct world *w = *state;
    int rc;

    shelf_close(&w->shelf);
    rc = dir_remove_tree(w->dir, NULL);
    free(w);
    return rc;
}

/* As a pull leaves it. */
static inline void shelf_put(struct world *w, struct slice bytes, struct digest *d)
{
    struct shelf_sealing x;
    struct shelf_sealing *const one = &x;
    char path[PATH_MAX];
    int fd;

    digest_of(bytes, d);
    shelf_partial_path(w->shelf, d, ".part", path);
    fd = open(path, O_RDWR | O_CREAT, 0644);
    assert_int_equal(write(fd, bytes.p, bytes.n), bytes.n);
    x = (struct shelf_sealing){.key = *d, .digest = *d, .fd = fd};
    shelf_seal(w->shelf, &one, 1);
    assert_int_equal(x.rc, 0);
    close(fd);
}

#endif
