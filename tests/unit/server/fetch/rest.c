/* What an origin says of rest, in seconds, as a date, and as a budget. */
#include "server/fetch/rest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { NOW = 784111777 }; /* Sun, 06 Nov 1994 08:49:37 GMT */

static uint64_t asked(int status, const char *name, const char *value)
{
    const struct xfer_field field = {slice_str(name), slice_str(value)};
    const struct xfer_head h = {.status = status, .fields = &field, .nfields = 1};

    return rest_asked_ms(&h, NOW);
}

static void in_seconds(void **state)
{
    (void)state;
    assert_int_equal(asked(429, "retry-after", "7"), 7000);
    assert_int_equal(asked(503, "retry-after", " 7 "), 7000);
    assert_int_equal(asked(503, "retry-after", "0"), 0);
    assert_int_equal(asked(503, "retry-after", "99999999"), 3600 * 1000);
    assert_int_equal(asked(503, "retry-after", "soon"), 0);
    assert_int_equal(asked(503, "retry-after", ""), 0);
}

static void only_where_it_counts(void **state)
{
    (void)state;
    assert_int_equal(asked(200, "retry-after", "7"), 0);
    assert_int_equal(asked(301, "retry-after", "7"), 0);
}

static void as_a_date(void **state)
{
    (void)state;
    assert_int_equal(asked(503, "retry-after", "Sun, 06 Nov 1994 08:49:57 GMT"), 20000);
    assert_int_equal(asked(503, "retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"), 0);
    assert_int_equal(asked(503, "retry-after", "Sun, 06 Nov 1994 08:49:07 GMT"), 0);
}

static void as_a_budget(void **state)
{
    (void)state;
    assert_int_equal(asked(200, "ratelimit", "\"api\";r=0;t=55"), 55000);
    assert_int_equal(asked(200, "ratelimit", "\"api\";r=0;t=500"), 60000);
    assert_int_equal(asked(200, "ratelimit", "\"api\";r=3;t=55"), 0);
    assert_int_equal(asked(200, "ratelimit", "\"api\";r=0"), 0);
    assert_int_equal(asked(200, "ratelimit", ";;;="), 0);
}

static void as_an_older_budget(void **state)
{
    const struct xfer_field spent[] = {{SLICE("ratelimit-remaining"), SLICE("0")},
                                       {SLICE("ratelimit-reset"), SLICE("12")}};
    const struct xfer_head h = {.status = 200, .fields = spent, .nfields = 2};

    (void)state;
    assert_int_equal(rest_asked_ms(&h, NOW), 12000);
    assert_int_equal(asked(200, "ratelimit-remaining", "0"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_seconds),         cmocka_unit_test(only_where_it_counts),
        cmocka_unit_test(as_a_date),          cmocka_unit_test(as_a_budget),
        cmocka_unit_test(as_an_older_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
