#include "server/http/reader_rate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static const struct reader_rate_limit limit = {.bytes_per_s = 1024, .over_ms = 60000};

/* Looks each second for so long; how often it was too slow. */
static unsigned run(struct reader_rate *r, uint64_t *now_ms, unsigned seconds, bool held,
                    uint64_t *bytes, uint64_t a_second)
{
    unsigned slow = 0;

    for (unsigned i = 0; i < seconds; i++) {
        *now_ms += 1000;
        *bytes += a_second;
        slow += reader_rate_look(r, &limit, *now_ms, held, *bytes);
    }
    return slow;
}

static void trickles(void **state)
{
    struct reader_rate r = {0};
    uint64_t now = 5000000, bytes = 0;

    (void)state;
    assert_int_equal(run(&r, &now, 59, true, &bytes, 1), 0);
    assert_int_equal(run(&r, &now, 30, true, &bytes, 1), 1);
}

static void slow_lines_are_served(void **state)
{
    struct reader_rate r = {0};
    uint64_t now = 5000000, bytes = 0;

    (void)state;
    assert_int_equal(run(&r, &now, 3600, true, &bytes, 1100), 0);
}

/* What an origin keeps back is not its reader's fault, however long. */
static void only_waiting_counts(void **state)
{
    struct reader_rate r = {0};
    uint64_t now = 5000000, bytes = 0;

    (void)state;
    assert_int_equal(run(&r, &now, 36000, false, &bytes, 0), 0);
    assert_int_equal(run(&r, &now, 50, true, &bytes, 0), 0);
    assert_int_equal(run(&r, &now, 3600, false, &bytes, 0), 0);
    assert_int_equal(run(&r, &now, 30, true, &bytes, 0), 1);
}

static void nobody_looked(void **state)
{
    struct reader_rate r = {0};
    uint64_t now = 5000000;

    (void)state;
    for (unsigned i = 0; i < 10; i++) {
        now += 3600000;
        assert_false(reader_rate_look(&r, &limit, now, true, 0));
    }
}

static void off(void **state)
{
    static const struct reader_rate_limit none = {.bytes_per_s = 0, .over_ms = 60000};
    struct reader_rate r = {0};

    (void)state;
    assert_true(reader_rate_due(&r, &none) == UINT64_MAX);
    for (uint64_t now = 0; now < 1000000; now += 5000) {
        assert_false(reader_rate_look(&r, &none, now, true, 0));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(trickles),
                                       cmocka_unit_test(slow_lines_are_served),
                                       cmocka_unit_test(only_waiting_counts),
                                       cmocka_unit_test(nobody_looked), cmocka_unit_test(off)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
