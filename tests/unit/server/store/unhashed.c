#include "server/store/unhashed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

enum { BLOCK = 1000, BLOCKS = 10, BYTES = BLOCK * BLOCKS + 17 };

static char bytes[BYTES];

static struct buf copy_of(size_t at, size_t n)
{
    struct buf b = BUF_INIT(BLOCK);

    buf_add(&b, bytes + at, n);
    return b;
}

/* Blocks in memory, blocks that are missing, a job that ends between two, a rest: the digest is that of the file. */
static void what_is_missing_is_read(void **state)
{
    FILE *f = tmpfile();
    struct hasher *h = hasher_new();
    struct unhashed all, some;
    struct digest want, got;
    struct err e = {0};

    (void)state;
    for (size_t i = 0; i < BYTES; i++) {
        bytes[i] = (char)(i * 31 >> 3);
    }
    assert_true(f != NULL && fwrite(bytes, 1, BYTES, f) == BYTES && fflush(f) == 0);
    unhashed_init(&all);
    unhashed_init(&some);
    for (size_t i = 2; i < BLOCKS; i++) {
        if (i != 5 && i != 8) {
            struct buf b = copy_of(i * BLOCK, BLOCK);
            unhashed_put(&all, i * BLOCK, &b);
            assert_null(b.p);
        }
    }
    assert_int_equal(all.bytes, 6 * BLOCK);
    unhashed_take(&all, 4 * BLOCK + 1, &some);
    assert_int_equal(some.bytes, 2 * BLOCK);
    assert_int_equal(unhashed_hash(&some, h, fileno(f), 4 * BLOCK + 1, &e), 0);
    assert_int_equal(hasher_count(h), 4 * BLOCK + 1);
    unhashed_take(
        &all, BYTES,
        &some); /* the first of these began before what is hashed: the file has its rest */
    assert_int_equal(unhashed_hash(&some, h, fileno(f), BYTES, &e), 0);
    assert_int_equal(some.bytes + all.bytes, 0);
    hasher_final(h, &got);
    digest_of(slice_of(bytes, BYTES), &want);
    assert_true(digest_eq(&got, &want));
    hasher_free(&h);
    fclose(f);
}

static void a_file_that_is_too_short(void **state)
{
    FILE *f = tmpfile();
    struct hasher *h = hasher_new();
    struct unhashed r;
    struct buf b = copy_of(BLOCK, BLOCK);
    struct err e = {0};

    (void)state;
    assert_non_null(f);
    unhashed_init(&r);
    unhashed_put(&r, BLOCK, &b);
    assert_int_not_equal(unhashed_hash(&r, h, fileno(f), (uint64_t)2 * BLOCK, &e), 0);
    assert_int_equal(r.bytes, 0);
    hasher_free(&h);
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_missing_is_read),
                                       cmocka_unit_test(a_file_that_is_too_short)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
