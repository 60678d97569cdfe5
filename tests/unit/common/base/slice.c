#include "common/base/slice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void numbers_and_their_digits(void **state)
{
    const uint64_t some[] = {0, 9, 10, 200, 4294967296u, UINT64_MAX / 10, UINT64_MAX};
    char room[U64_DIGITS];
    uint64_t v;

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        assert_true(slice_u64(slice_of_u64(room, some[i]), &v) && v == some[i]);
    }
    assert_true(slice_eq(slice_of_u64(room, UINT64_MAX), SLICE("18446744073709551615")));
}

static void behind_the_last(void **state)
{
    (void)state;
    assert_int_equal(slice_behind(SLICE("a/b/c"), '/'), 4);
    assert_int_equal(slice_behind(SLICE("a/b/"), '/'), 4);
    assert_int_equal(slice_behind(SLICE("/"), '/'), 1);
    assert_int_equal(slice_behind(SLICE("abc"), '/'), 0);
    assert_int_equal(slice_behind(SLICE(""), '/'), 0);
    assert_int_equal(slice_behind(SLICE_NONE, '/'), 0);
}

static void what_is_no_number(void **state)
{
    const char *wrong[] = {"", "-1", "+1", " 1", "1 ", "0x1", "1.0", "18446744073709551616"};
    uint64_t v;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_false(slice_u64(slice_str(wrong[i]), &v));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers_and_their_digits),
                                       cmocka_unit_test(behind_the_last),
                                       cmocka_unit_test(what_is_no_number)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
