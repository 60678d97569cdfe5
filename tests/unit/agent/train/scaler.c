#include "agent/train/scaler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void test_halves_and_doubles(void **state)
{
    struct scaler s;

    (void)state;
    scaler_init(&s, true, 65536);
    scaler_step(&s, false);
    scaler_step(&s, false);
    assert_true(s.scale == 16384);
    for (int i = 0; i < SCALER_GROWTH_STEPS - 1; i++) {
        scaler_step(&s, true);
    }
    assert_true(s.scale == 16384);
    scaler_step(&s, true);
    assert_true(s.scale == 32768 && s.good == 0);
    for (int i = 0; i < SCALER_GROWTH_STEPS - 1; i++) {
        scaler_step(&s, true);
    }
    scaler_step(&s, false); /* the row of good steps begins anew */
    scaler_step(&s, true);
    assert_true(s.scale == 16384 && s.good == 1);
}

static void test_stays_one_when_off(void **state)
{
    struct scaler s;

    (void)state;
    scaler_init(&s, false, 65536);
    scaler_step(&s, false);
    assert_true(s.scale == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_halves_and_doubles),
        cmocka_unit_test(test_stays_one_when_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
