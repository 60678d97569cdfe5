#include "common/codec/httpdate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define NOW 1790000000u /* 2026 */

static void reads_the_three_forms(void **state)
{
    uint64_t t = 0;

    (void)state;
    assert_true(httpdate_parse(SLICE("Sun, 06 Nov 1994 08:49:37 GMT"), NOW, &t));
    assert_int_equal(t, 784111777);
    t = 0;
    assert_true(httpdate_parse(SLICE("Sunday, 06-Nov-94 08:49:37 GMT"), NOW, &t));
    assert_int_equal(t, 784111777);
    t = 0;
    assert_true(httpdate_parse(SLICE("Sun Nov  6 08:49:37 1994"), NOW, &t));
    assert_int_equal(t, 784111777);
}

static void refuses_the_rest(void **state)
{
    static const char *const bad[] = {"",
                                      "0",
                                      "-1",
                                      "Sun, 06 Nov 1994 08:49:37",
                                      "Sun, 06 Nov 1994 08:49:37 UTC",
                                      "Sun, 06 Nov 1994 24:49:37 GMT",
                                      "Sun, 00 Nov 1994 08:49:37 GMT",
                                      "Sun, 06 Nox 1994 08:49:37 GMT",
                                      "Sun, 06 Nov 1900 08:49:37 GMT",
                                      "Sun Nov  6"};
    uint64_t t;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_false(httpdate_parse(slice_str(bad[i]), NOW, &t));
    }
}

static void writes_what_it_reads(void **state)
{
    static const uint64_t times[] = {0, 784111777, 951782400 /* leap day */, 4102444799u};
    char text[HTTPDATE_ROOM];
    uint64_t t;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(times); i++) {
        httpdate_format(times[i], text);
        assert_true(httpdate_parse(slice_str(text), NOW, &t));
        assert_int_equal(t, times[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_the_three_forms),
        cmocka_unit_test(refuses_the_rest),
        cmocka_unit_test(writes_what_it_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
