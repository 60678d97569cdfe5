#include "agent/train/outlier.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void test_deviations_of_the_last_numbers(void **state)
{
    struct outlier o = {0};

    (void)state;
    assert_true(outlier_add(&o, 1e9) ==
                0); /* nothing to compare it with; it leaves the window again */
    for (int i = 0; i < OUTLIER_WINDOW; i++) {
        double z = outlier_add(&o, i % 2 == 0 ? 2 : 4);

        assert_true(i == OUTLIER_WINDOW - 1 || z == 0);
    }
    /* Mean 3, deviation 1. */
    assert_true(fabs(outlier_add(&o, 8) - 5) < 1e-9);
    assert_true(outlier_add(&o, 8) < 5); /* the first one is part of the window now */
}

static void test_no_deviation_no_outlier(void **state)
{
    struct outlier o = {0};

    (void)state;
    for (int i = 0; i < 2 * OUTLIER_WINDOW; i++) {
        assert_true(outlier_add(&o, 7) == 0);
    }
    assert_true(outlier_add(&o, 8) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deviations_of_the_last_numbers),
        cmocka_unit_test(test_no_deviation_no_outlier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
