#include "common/base/lasting.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { NOW = 5000, SECOND = 1000 };

/* A check a second: how many lines are due until `to`, and of which kind the last is. */
static int lines(struct lasting *l, bool there, uint64_t from_ms, uint64_t to_ms,
                 enum lasting_line *last)
{
    int n = 0;

    *last = LASTING_NONE;
    for (uint64_t now_ms = from_ms; now_ms < to_ms; now_ms += SECOND) {
        enum lasting_line line = lasting_check(l, there, now_ms);
        n += line != LASTING_NONE;
        *last = line != LASTING_NONE ? line : *last;
    }
    return n;
}

static void a_line_at_the_beginning_and_one_an_hour(void **state)
{
    struct lasting l = {0};
    enum lasting_line last;

    (void)state;
    assert_int_equal(lasting_check(&l, false, NOW), LASTING_NONE);
    assert_int_equal(lines(&l, true, NOW, NOW + LASTING_AGAIN_MS, &last), 1);
    assert_int_equal(last, LASTING_BEGINS);
    assert_int_equal(
        lines(&l, true, NOW + LASTING_AGAIN_MS, NOW + (uint64_t)2 * LASTING_AGAIN_MS, &last), 1);
    assert_int_equal(last, LASTING_LASTS);
    assert_int_equal(l.since_ms, NOW);
}

static void a_line_at_the_end_once_it_stays_away(void **state)
{
    struct lasting l = {0};
    enum lasting_line last;
    uint64_t now_ms = NOW;

    (void)state;
    for (int i = 0; i < 100; i++, now_ms += 2 * SECOND) { /* it comes and goes */
        assert_int_equal(lasting_check(&l, true, now_ms), i == 0 ? LASTING_BEGINS : LASTING_NONE);
        assert_int_equal(lasting_check(&l, false, now_ms + SECOND), LASTING_NONE);
    }
    assert_int_equal(lines(&l, false, now_ms, now_ms + LASTING_AGAIN_MS, &last), 1);
    assert_int_equal(last, LASTING_OVER);
    assert_int_equal(l.since_ms, NOW);
    assert_int_equal(lasting_check(&l, true, now_ms + LASTING_AGAIN_MS), LASTING_BEGINS);
    assert_int_equal(l.since_ms, now_ms + LASTING_AGAIN_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_at_the_beginning_and_one_an_hour),
        cmocka_unit_test(a_line_at_the_end_once_it_stays_away),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
