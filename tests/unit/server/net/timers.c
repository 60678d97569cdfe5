#include "server/net/timers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

struct alarm {
    struct timer timer;
    struct timer *stops; /* another that it stops when it fires */
    int fired;
};

static void on_fire(struct timer *t)
{
    struct alarm *a = CONTAINER_OF(t, struct alarm, timer);

    a->fired++;
    if (a->stops != NULL) {
        timer_stop(a->stops);
    }
}

static void fires_once_and_in_time(void **state)
{
    static struct timers w;
    struct alarm soon = {.timer.fire = on_fire};
    struct alarm late = {.timer.fire = on_fire};
    struct alarm past = {.timer.fire = on_fire};

    (void)state;
    timers_init(&w, 1000);
    timer_set(&w, &soon.timer, 1250);
    timer_set(&w, &late.timer,
              1000 + 3 * TIMERS_SLOTS * TIMERS_STEP_MS); /* turns of the wheel away */
    timer_set(&w, &past.timer, 10);
    timers_run(&w, 1249);
    assert_int_equal(soon.fired, 0);
    assert_int_equal(past.fired, 1);
    timers_run(&w, 1350);
    assert_int_equal(soon.fired, 1);
    for (uint64_t now = 1400; now < late.timer.due_ms; now += 700) {
        timers_run(&w, now);
        assert_int_equal(late.fired, 0);
    }
    timers_run(&w, late.timer.due_ms + TIMERS_STEP_MS);
    assert_int_equal(late.fired, 1);
    assert_int_equal(soon.fired + past.fired, 2);
}

static void may_be_moved_and_stopped(void **state)
{
    static struct timers w;
    struct alarm a = {.timer.fire = on_fire};
    struct alarm b = {.timer.fire = on_fire};

    (void)state;
    timers_init(&w, 0);
    timer_set(&w, &a.timer, 500);
    timer_set(&w, &a.timer, 900);
    timer_set(&w, &b.timer, 900);
    a.stops = &b.timer; /* in the same slot, behind it */
    timers_run(&w, 800);
    assert_int_equal(a.fired, 0);
    timers_run(&w, 100000000); /* a long sleep */
    assert_int_equal(a.fired, 1);
    assert_int_equal(b.fired, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fires_once_and_in_time),
                                       cmocka_unit_test(may_be_moved_and_stopped)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
