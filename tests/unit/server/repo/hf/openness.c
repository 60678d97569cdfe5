#include "server/repo/hf/openness.h"

#include "tests/harness/ask.h"

static void test_one_row_for_all_spellings(void **state)
{
    struct arena a = {0};
    struct slice key = openness_key("hf", SLICE("models"), SLICE("Org/Demo-1.0_X"), &a);

    (void)state;
    assert_int_equal(key.n, strlen("hf") + 1 + strlen("models/org/demo-1.0_x"));
    assert_memory_equal(key.p, "hf\0models/org/demo-1.0_x", key.n);
    arena_fini(&a);
}

static void test_a_row_is_read_as_it_was_written(void **state)
{
    struct openness_note n = {.openness = HUB_GATED,
                              .said_unix_s = 1700000000,
                              .since_unix_s = 7,
                              .id = SLICE("org/demo"),
                              .number = SLICE("621ffdc0")},
                         got;
    struct arena a = {0};
    struct slice row;

    (void)state;
    for (int i = 0; i < 2; i++) {
        row = openness_write(&n, &a);
        openness_read(row, &got);
        assert_true(got.here && got.openness == HUB_GATED);
        assert_int_equal(got.said_unix_s, 1700000000);
        assert_int_equal(got.since_unix_s, 7);
        assert_true(slice_eq(got.id, n.id) && slice_eq(got.number, n.number));
        n.number = SLICE("");
    }
    for (size_t cut = 0; cut < row.n;
         cut++) { /* nothing is made of a broken one, and it can be written anew */
        openness_read(slice_first(row, cut), &got);
        assert_false(got.here);
        assert_true(got.row.p != NULL);
    }
    openness_read(SLICE_NONE, &got);
    assert_true(!got.here && got.row.p == NULL);
    arena_fini(&a);
}

static void test_a_name_may_be_anothers(void **state)
{
    struct openness_note n = {.id = SLICE("org/demo"), .number = SLICE("1")};

    (void)state;
    assert_true(openness_is_of(&n, SLICE("org/demo"), SLICE("1")));
    assert_true(openness_is_of(&n, SLICE("org/demo"), SLICE("")));
    assert_false(openness_is_of(&n, SLICE("org/demo"), SLICE("2")));
    assert_false(openness_is_of(&n, SLICE("org/other"), SLICE("1")));
    n.number = SLICE("");
    assert_true(openness_is_of(&n, SLICE("org/demo"), SLICE("2")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_row_for_all_spellings),
        cmocka_unit_test(test_a_row_is_read_as_it_was_written),
        cmocka_unit_test(test_a_name_may_be_anothers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
