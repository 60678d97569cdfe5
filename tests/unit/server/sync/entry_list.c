#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "server/sync/entry_list.h"

static struct sync_entry file(const char *path)
{
    return (struct sync_entry){.type = SYNC_FILE,
                               .path = slice_str(path),
                               .size_bytes = SYNC_SIZE_UNKNOWN,
                               .mtime_ns = SYNC_TIME_UNKNOWN};
}

static void test_everything_comes_back(void **state)
{
    static const int64_t times[] = {0,
                                    1,
                                    -1,
                                    1700000000123456789,
                                    -1700000000123456789,
                                    SYNC_TIME_UNKNOWN,
                                    4102444800000000000};
    struct entry_list *r = entry_list_new(100, UINT64_MAX);
    struct err e = {0};
    uint64_t left_out;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(times); i++) {
        char path[32];
        struct sync_entry en;
        snprintf(path, sizeof path, "d/%zu", i);
        en = file(path);
        en.mtime_ns = times[i];
        en.size_bytes = i % 2 == 0 ? SYNC_SIZE_UNKNOWN : UINT64_MAX - 1 - i;
        en.executable = i % 3 == 0;
        en.digest_known = i % 2 == 0;
        en.digest.b[3] = (uint8_t)i;
        en.validator = i % 3 == 1 ? SLICE("\"etag\"") : SLICE_NONE;
        en.leader = i == 2 ? SLICE("d/1") : SLICE_NONE;
        en.mtime_step_s = i == 4 ? 60 : 0;
        en.size_step = i == 4 ? 102 : 0;
        en.ref = i * 1000;
        assert_int_equal(entry_list_add(r, &en, &e), 0);
    }
    entry_list_sort(r, &left_out);
    assert_int_equal(left_out, 0);
    for (size_t i = 0; i < ARRAY_LEN(times); i++) {
        struct sync_entry en;
        entry_list_get(r, i, &en);
        assert_int_equal(en.type, SYNC_FILE);
        assert_true(en.mtime_ns == times[i]);
        assert_true(en.size_bytes == (i % 2 == 0 ? SYNC_SIZE_UNKNOWN : UINT64_MAX - 1 - i));
        assert_true(en.executable == (i % 3 == 0) && en.digest_known == (i % 2 == 0));
        assert_true(!en.digest_known || en.digest.b[3] == i);
        assert_true(slice_eq(en.validator, i % 3 == 1 ? SLICE("\"etag\"") : SLICE_NONE));
        assert_true(slice_eq(en.leader, i == 2 ? SLICE("d/1") : SLICE_NONE));
        assert_int_equal(en.mtime_step_s, i == 4 ? 60 : 0);
        assert_int_equal(en.size_step, i == 4 ? 102 : 0);
        assert_int_equal(en.ref, i * 1000);
    }
    entry_list_free(&r);
}

/* Bytes decide, also across folders: "a-b" stands before "a/b", "a" before both. */
static void test_order_and_doubles(void **state)
{
    static const char *const in[] = {"b/x", "a/b",   "a-b", "a!",     "b",
                                     "a/b", "a/b/c", "z",   "a/\xff", "a/b-"};
    static const char *const out[] = {"a!", "a-b", "a/b", "a/b-", "a/\xff", "b", "z"};
    struct entry_list *r = entry_list_new(100, UINT64_MAX);
    struct sync_entry en;
    struct err e = {0};
    uint64_t left_out;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(in); i++) {
        en = file(in[i]);
        en.ref = i;
        assert_int_equal(entry_list_add(r, &en, &e), 0);
    }
    entry_list_sort(r, &left_out);
    assert_int_equal(left_out, 2); /* a/b/c and b/x, below files */
    assert_int_equal(entry_list_count(r), ARRAY_LEN(out));
    for (size_t i = 0; i < ARRAY_LEN(out); i++) {
        entry_list_get(r, i, &en);
        assert_true(slice_eqs(en.path, out[i]));
        assert_int_equal(entry_list_find(r, en.path), i);
    }
    assert_int_equal(entry_list_find(r, SLICE("nothing")), -1);
    entry_list_get(r, 2, &en);
    assert_int_equal(en.ref, 1); /* the first of two */
    entry_list_free(&r);
}

static void test_limits_and_names(void **state)
{
    static const char *const wrong[] = {"", "/a", "a/", "a//b", "..", "a/../b", ".", "a/./b"};
    struct entry_list *r = entry_list_new(2, UINT64_MAX);
    struct sync_entry en;
    struct err e = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        en = file(wrong[i]);
        assert_int_equal(entry_list_add(r, &en, &e), E_INVALID);
    }
    en = (struct sync_entry){.type = SYNC_LINK, .path = SLICE("l")};
    assert_int_equal(entry_list_add(r, &en, &e), E_INVALID); /* to nowhere */
    en = file("a");
    assert_int_equal(entry_list_add(r, &en, &e), 0);
    en = file("b");
    assert_int_equal(entry_list_add(r, &en, &e), 0);
    en = file("c");
    assert_int_equal(entry_list_add(r, &en, &e), E_TOOBIG);
    entry_list_free(&r);
}

/* The bound of docs/benchmarks.md for a million entries, at a tenth of that. */
static void test_memory(void **state)
{
    struct entry_list *r = entry_list_new(200000, UINT64_MAX);
    struct err e = {0};
    uint64_t left_out;

    (void)state;
    for (unsigned i = 0; i < 100000; i++) {
        char path[96];
        struct sync_entry en;
        snprintf(path, sizeof path, "pool/%03u/%02u/package-%07u_1.2.3-1.bin", i % 97, i % 31, i);
        en = file(path);
        en.size_bytes = 100000 + i;
        en.mtime_ns = (int64_t)(1700000000 + i) * 1000000000;
        assert_int_equal(entry_list_add(r, &en, &e), 0);
    }
    entry_list_sort(r, &left_out);
    assert_int_equal(entry_list_count(r), 100000);
    assert_true(entry_list_memory(r) < 6 << 20);
    entry_list_free(&r);
}

/* A peer may send long names of folders in few bytes. */
static void test_memory_has_a_bound(void **state)
{
    struct entry_list *r = entry_list_new(UINT64_MAX, 4 << 20);
    char path[4001];
    struct err e = {0};
    int rc = 0;

    (void)state;
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    for (unsigned i = 0; rc == 0 && i < 100000; i++) {
        struct sync_entry en;
        snprintf(path + 3000, sizeof path - 3000, "%u/f", i);
        en = file(path);
        rc = entry_list_add(r, &en, &e);
    }
    assert_int_equal(rc, E_TOOBIG);
    assert_true(entry_list_memory(r) < 5 << 20);
    entry_list_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_comes_back), cmocka_unit_test(test_order_and_doubles),
        cmocka_unit_test(test_limits_and_names),      cmocka_unit_test(test_memory),
        cmocka_unit_test(test_memory_has_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
