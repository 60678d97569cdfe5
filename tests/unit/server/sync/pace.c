#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/sync/pace.h"

enum { SUNDAY = 1795305600, HOUR = 3600, DAY = 86400 }; /* 2026-11-22 00:00 */

static uint64_t rate(const char *text, uint64_t unix_s)
{
    struct pace p = {.windows = 1};
    struct err e = {0};

    if (hours_parse(slice_str(text), &p.window[0], &e) != 0) {
        fail_msg("%s: %s", text, e.text);
    }
    return pace_rate(&p, unix_s);
}

static void test_windows(void **state)
{
    (void)state;
    assert_int_equal(rate("08:00-18:00 1k/s", SUNDAY + 8 * HOUR), 1024);
    assert_true(rate("08:00-18:00 1k/s", SUNDAY + 18 * HOUR) == UINT64_MAX);
    assert_true(rate("mon-fri 08:00-18:00 1k/s", SUNDAY + 9 * HOUR) == UINT64_MAX);
    assert_int_equal(rate("mon-fri 08:00-18:00 1k/s", SUNDAY + DAY + 9 * HOUR), 1024);
    assert_int_equal(rate("sat-mon 00:00-24:00 1k/s", SUNDAY), 1024);
    assert_int_equal(rate("sat 22:00-06:00 1k/s", SUNDAY + 5 * HOUR), 1024); /* began yesterday */
    assert_true(rate("sun 22:00-06:00 1k/s", SUNDAY + 5 * HOUR) == UINT64_MAX);
    assert_true(rate("00:00-24:00 0", SUNDAY) == UINT64_MAX);
}

static void test_refused(void **state)
{
    static const char *const wrong[] = {"",
                                        "mon",
                                        "08:00 1k/s",
                                        "08:00-08:00 1k/s",
                                        "8-18 1k/s",
                                        "25:00-26:00 1k/s",
                                        "08:60-09:00 1k/s",
                                        "08:00-09:00",
                                        "08:00-09:00 x",
                                        "xxx 08:00-09:00 1k/s",
                                        "mon- 08:00-09:00 1k/s",
                                        "08:00-24:01 1k/s"};
    struct hours h;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct err e = {0};
        assert_int_equal(hours_parse(slice_str(wrong[i]), &h, &e), E_INVALID);
    }
}

static void test_pauses_add_up(void **state)
{
    struct pace p = {.windows = 1};
    uint64_t now = 1000, sent = 0;

    (void)state;
    assert_int_equal(hours_parse(SLICE("00:00-24:00 100k/s"), &p.window[0], NULL), 0);
    p.then_ms = now;
    while (now < 61000) {
        uint64_t wait = pace_spend(&p, 16384, now, SUNDAY);
        sent += 16384;
        now += wait + 1; /* who pauses comes back a little late */
    }
    assert_in_range(sent, 59 * 102400, 61 * 102400);
    /* A limit that ends is forgotten. */
    p.window[0].rate_bytes_per_s = 0;
    assert_int_equal(pace_spend(&p, 1 << 30, now, SUNDAY), 0);
    p.window[0].rate_bytes_per_s = 1;
    assert_int_equal(pace_spend(&p, 1 << 30, now, SUNDAY),
                     2000); /* never longer: the clock may bring another window */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_pauses_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
