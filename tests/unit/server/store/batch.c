#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "server/store/batch.h"

/* Many enough to be sorted: keys in disorder, three tables, one key written twice and then
 * removed. */
static void test_sorted_by_table_and_key(void **state)
{
    struct batch *b = batch_new();
    struct batch_step st, before = {0};
    size_t count = 0, ofsame = 0;

    (void)state;
    for (unsigned i = 0; i < 500; i++) {
        char key[16], value[16];
        snprintf(key, sizeof key, "%03u", i * 7 % 500);
        snprintf(value, sizeof value, "v%u", i);
        batch_put(b,
                  i % 3 == 0   ? TABLE_BLOB
                  : i % 3 == 1 ? TABLE_INLINE
                               : TABLE_HOLDER,
                  slice_str(key), slice_str(value));
    }
    batch_put(b, TABLE_META, SLICE("same"), SLICE("1"));
    batch_put(b, TABLE_META, SLICE("same-and-more"), SLICE(""));
    batch_put(b, TABLE_META, SLICE(""), SLICE("no key"));
    batch_put(b, TABLE_META, SLICE("same"), SLICE("2"));
    batch_del(b, TABLE_META, SLICE("same"));
    batch_sort(b);
    for (size_t at = 0; batch_next(b, &at, &st); count++) {
        if (count != 0 && st.table == before.table) {
            assert_true(slice_cmp(before.key, st.key) <= 0);
        } else if (count != 0) {
            assert_true(before.table < st.table);
        }
        if (slice_eqs(st.key, "same")) {
            ofsame++;
            assert_int_equal(st.op, ofsame == 3 ? OP_DEL : OP_PUT);
            assert_true(ofsame == 3 || slice_eqs(st.value, ofsame == 1 ? "1" : "2"));
        }
        before = st;
    }
    assert_int_equal(count, 505);
    assert_int_equal(ofsame, 3);
    batch_free(&b);
}

static void test_few_and_none(void **state)
{
    struct batch *b = batch_new();
    struct batch_step st;
    size_t at = 0;

    (void)state;
    batch_sort(b);
    assert_false(batch_next(b, &at, &st));
    batch_put(b, TABLE_META, SLICE("b"), SLICE("1"));
    batch_put(b, TABLE_META, SLICE("a"), SLICE("2"));
    batch_sort(b);
    assert_true(batch_next(b, &at, &st) && batch_next(b, &at, &st) && !batch_next(b, &at, &st));
    batch_free(&b);
}

/* What goes beyond the bound is no step, nor half of one; what is there can still be walked. */
static void test_too_much(void **state)
{
    struct batch *b = batch_new();
    struct batch_step st;
    size_t at = 0, count = 0;

    (void)state;
    b->steps.max = 1000;
    for (unsigned i = 0; i < 100; i++) {
        batch_put(b, TABLE_META, SLICE("0123456789"), SLICE("0123456789"));
        batch_del(b, TABLE_META, SLICE("x"));
    }
    assert_int_equal(b->steps.rc, E_TOOBIG);
    batch_sort(b);
    while (at <= b->steps.n && batch_next(b, &at, &st)) {
        assert_true(st.key.n == 10 || st.key.n == 1);
        count++;
    }
    assert_int_equal(at, b->steps.n);
    assert_int_equal(count,
                     2 * (1000 / 41)); /* a pair has 41 bytes, and the next put is too much */
    batch_free(&b);
}

/* Numbers stand in logs that are older than this program. */
static void test_shared_tables(void **state)
{
    static const struct {
        enum table table;
        uint8_t number;
    } is[] = {
        {TABLE_HEAD, 1},   {TABLE_SNAP, 2},    {TABLE_REF, 3},    {TABLE_NOTE, 4},
        {TABLE_MOVED, 5},  {TABLE_TOKEN, 6},   {TABLE_PIN, 7},    {TABLE_HELD, 8},
        {TABLE_SYNC, 10},  {TABLE_RUN, 11},    {TABLE_INDEX, 12}, {TABLE_COLLECT, 13},
        {TABLE_CLAIM, 14}, {TABLE_FORMAT, 15},
    };
    size_t shared = 0;
    enum table t;

    (void)state;
    for (int i = 0; i < TABLES; i++) {
        shared += table_shared_number((enum table)i) != 0;
    }
    assert_int_equal(shared, sizeof is / sizeof is[0]);
    for (size_t i = 0; i < shared; i++) {
        assert_int_equal(table_shared_number(is[i].table), is[i].number);
        assert_true(table_of_shared_number(is[i].number, &t) && t == is[i].table);
    }
    assert_false(table_of_shared_number(0, &t));
    assert_false(table_of_shared_number(16, &t));
}

static void test_shared_batches(void **state)
{
    struct batch *b = batch_new();

    (void)state;
    batch_put(b, TABLE_META, SLICE("k"), SLICE("1"));
    batch_require_absent(b, TABLE_TOKEN, SLICE("t"));
    assert_false(batch_is_shared(b)); /* it only reads there */
    batch_del(b, TABLE_TOKEN, SLICE("u"));
    assert_true(batch_is_shared(b));
    batch_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sorted_by_table_and_key),
        cmocka_unit_test(test_few_and_none),
        cmocka_unit_test(test_shared_tables),
        cmocka_unit_test(test_shared_batches),
        cmocka_unit_test(test_too_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
