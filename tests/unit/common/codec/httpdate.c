#include "common/codec/httpdate.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const uint64_t now = 1795219200; /* late in 2026 */

static void test_three_forms(void **state)
{
    static const char *const same[] = {"Sun, 06 Nov 1994 08:49:37 GMT",
                                       "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994",
                                       "Sun Nov 06 08:49:37 1994",
                                       "sun, 06 NOV 1994 08:49:37 gmt"}; /* RFC 9111 4.2 */
    uint64_t t;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(same); i++) {
        assert_true(httpdate_parse(slice_str(same[i]), now, &t));
        assert_int_equal(t, 784111777);
    }
    assert_true(httpdate_parse(SLICE("Friday, 01-Jan-30 00:00:00 GMT"), now, &t));
    assert_int_equal(t, 1893456000);
    assert_true(httpdate_parse(SLICE("Thu, 01 Jan 1931 00:00:00 GMT"), now, &t));
    assert_int_equal(t, 0);
}

static void test_no_dates(void **state)
{
    static const char *const bad[] = {"",
                                      "0",
                                      "-1",
                                      "Sun, 06 Nov 1994 08:49:37",
                                      "Sun, 06 Nov 1994 08:49:37 CET",
                                      "Sun, 6 Nov 1994 08:49:37 GMT",
                                      "Sun, 06 Nov 1994 24:49:37 GMT",
                                      "Sun, 00 Nov 1994 08:49:37 GMT",
                                      "Sun, 06 Foo 1994 08:49:37 GMT",
                                      "Sun, 06 Nov 1994 08:49:37 GMTx",
                                      "Sun Nov  6 08:49:37 1994 ",
                                      "Sun",
                                      "Sun,"};
    uint64_t t;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (httpdate_parse(slice_str(bad[i]), now, &t)) {
            fail_msg("taken for a date: %s", bad[i]);
        }
    }
}

static void test_round_trip(void **state)
{
    char text[HTTPDATE_ROOM];
    uint64_t t;

    (void)state;
    httpdate_format(784111777, text);
    assert_string_equal(text, "Sun, 06 Nov 1994 08:49:37 GMT");
    for (uint64_t s = 0; s < 4000000000u; s += 86399 * 331) {
        httpdate_format(s, text);
        assert_true(httpdate_parse(slice_str(text), now, &t));
        assert_int_equal(t, s);
    }
    httpdate_format(UINT64_MAX, text);
    assert_string_equal(text, "Fri, 31 Dec 9999 23:59:59 GMT");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_three_forms),
        cmocka_unit_test(test_no_dates),
        cmocka_unit_test(test_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
