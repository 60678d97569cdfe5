/* store.h - a store in a folder of its own, for unit tests: opened in setup, removed in
 * teardown. */
#ifndef TESTS_HARNESS_STORE_H
#define TESTS_HARNESS_STORE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/os/newfile.h"
#include "server/store/keep.h"

struct fixture {
    char dir[64];
    struct store *s;
    struct store_settings set;
};

static inline void fixture_open(struct fixture *f)
{
    struct err e = {0};

    if (store_open(&f->set, &f->s, &e) != 0) {
        fail_msg("store_open: %s", e.text);
    }
}

static inline void fixture_reopen(struct fixture *f)
{
    store_close(&f->s);
    fixture_open(f);
}

static inline int fixture_setup(void **state)
{
    struct fixture *f = NEW(struct fixture);
    const char *tmp = getenv("TMPDIR");

    snprintf(f->dir, sizeof f->dir, "%.40s/store.XXXXXX", tmp != NULL ? tmp : "/tmp");
    assert_non_null(mkdtemp(f->dir));
    f->set = (struct store_settings){
        .state_dir = f->dir,
        .reserve_bytes = 1,
        .high_ratio = 0.90,
        .low_ratio = 0.85,
        .block_cache_bytes = 8 << 20,
    };
    fixture_open(f);
    *state = f;
    return 0;
}

static inline int fixture_teardown(void **state)
{
    struct fixture *f = *state;
    struct err e;

    store_close(&f->s);
    assert_int_equal(dir_remove_tree(f->dir, &e), 0);
    free(f);
    return 0;
}

/* Bytes that depend on `seed` alone; malloc()ed. */
static inline struct slice sample_bytes(uint64_t seed, size_t n)
{
    char *p = malloc(n + 8);
    uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;

    assert_non_null(p);
    for (size_t i = 0; i < n; i += 8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        memcpy(p + i, &x, 8);
    }
    return slice_of(p, n);
}

/* Commits a blob of sample_bytes(); with an object that holds it when key is not NULL. */
static inline struct digest put_sample(struct store *s, uint64_t seed, size_t n, const char *repo,
                                       const char *key)
{
    struct slice bytes = sample_bytes(seed, n);
    struct batch *b = batch_new();
    struct blob *blob = NULL;
    struct digest d;
    struct err e = {0};

    assert_int_equal(blob_put_bytes(s, bytes, b, &blob, &e), 0);
    d = *blob_digest(blob);
    blob_release(&blob);
    if (key != NULL) {
        struct buf row_key = BUF_INIT(1024);
        holder_key(&row_key, &d, slice_str(repo), 'o', slice_str(key));
        batch_put(b, TABLE_HOLDER, buf_slice(&row_key), SLICE_NONE);
        buf_clear(&row_key);
        buf_addf(&row_key, "%s%c%s", repo, 0, key);
        batch_put(b, TABLE_OBJECT, buf_slice(&row_key), SLICE("object"));
        buf_free(&row_key);
    }
    if (store_commit(s, &b, COMMIT_SYNC, &e) != 0) {
        fail_msg("commit: %s", e.text);
    }
    free((char *)(uintptr_t)bytes.p);
    return d;
}

/* The blob opens, has that many bytes, and they are the digest's. */
static inline void assert_blob(struct store *s, const struct digest *d, size_t n)
{
    struct blob *b = NULL;
    struct digest got;
    struct err e = {0};
    char *p = malloc(n + 1);

    if (blob_open(s, d, &b, &e) != 0) {
        fail_msg("blob_open: %s", e.text);
    }
    assert_int_equal(blob_size_bytes(b), n);
    assert_int_equal(blob_read(b, 0, p, n, &e), 0);
    digest_of(slice_of(p, n), &got);
    assert_true(digest_eq(&got, d));
    free(p);
    blob_release(&b);
}

static inline bool blob_is_there(struct store *s, const struct digest *d)
{
    bool yes = false;

    assert_int_equal(blob_exists(s, d, &yes, NULL), 0);
    return yes;
}

static inline bool blob_file_is_there(const struct fixture *f, const struct digest *d)
{
    char hex[DIGEST_HEX + 1];
    char path[200];

    digest_format(d, hex);
    snprintf(path, sizeof path, "%s/blobs/%.2s/%.2s/%s", f->dir, hex, hex + 2, hex);
    return access(path, F_OK) == 0;
}

#endif
