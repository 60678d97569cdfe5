#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/sync/cron.h"

enum { SUNDAY = 1795305600 }; /* 2026-11-22 00:00 UTC */

static uint64_t next(const char *text, uint64_t from)
{
    struct cron c;
    struct err e = {0};

    if (cron_parse(slice_str(text), &c, &e) != 0) {
        fail_msg("%s: %s", text, e.text);
    }
    return cron_next(&c, from);
}

static void test_next(void **state)
{
    (void)state;
    assert_int_equal(next("17 3 * * *", SUNDAY), SUNDAY + 3 * 3600 + 17 * 60);
    assert_int_equal(next("17 3 * * *", SUNDAY + 3 * 3600 + 17 * 60),
                     SUNDAY + 86400 + 3 * 3600 + 17 * 60);
    assert_int_equal(next("*/15 * * * *", SUNDAY + 1), SUNDAY + 900);
    assert_int_equal(next("5/20 * * * *", SUNDAY), SUNDAY + 300);
    assert_int_equal(next("0 0 * * mon-fri", SUNDAY), SUNDAY + 86400);
    assert_int_equal(next("0 0 * * 7", SUNDAY), SUNDAY + 7 * 86400);
    assert_int_equal(next("0 0 1 dec *", SUNDAY), SUNDAY + 9 * 86400);
    assert_int_equal(next("0,30 6-8/2 * * *", SUNDAY + 6 * 3600 + 1), SUNDAY + 6 * 3600 + 1800);
    assert_int_equal(next("@hourly", SUNDAY + 59), SUNDAY + 3600);
    assert_int_equal(next("every 6h", SUNDAY + 5), SUNDAY + 5 + 6 * 3600);
    /* Both days restricted: either will do. The 25th is a Wednesday. */
    assert_int_equal(next("0 0 25 * tue", SUNDAY), SUNDAY + 2 * 86400);
    assert_int_equal(next("0 0 25 * tue", SUNDAY + 2 * 86400), SUNDAY + 3 * 86400);
    assert_int_equal(next("0 0 29 2 *", SUNDAY), 1835395200); /* 2028 */
    assert_true(next("0 0 30 2 *", SUNDAY) == UINT64_MAX);
}

static void test_refused(void **state)
{
    static const char *const wrong[] = {
        "",          "* * * *",     "60 * * * *",  "* 24 * * *",    "* * 0 * *",  "* * * 13 *",
        "* * * * 8", "5-3 * * * *", "*/0 * * * *", "a * * * *",     "1, * * * *", "* * * * * *",
        "every",     "every 1",     "every 10ms",  "1-2-3 * * * *", "-1 * * * *", "*/99 * * * *",
        "@never"};
    struct cron c;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct err e = {0};
        assert_int_equal(cron_parse(slice_str(wrong[i]), &c, &e), E_INVALID);
        assert_true(e.text[0] != '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_next),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
