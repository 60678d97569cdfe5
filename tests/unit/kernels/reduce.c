#include "kernels/reduce.h"

#include "tests/unit/kernels/finite.h"

static void test_sums_add_up(void **state)
{
    enum { N = 1000 };
    double *x = finite_array(N), sum = 5, sumsq = 7, want = 5, want_sq = 7;

    (void)state;
    for (int i = 0; i < N; i++) {
        want += x[i];
        want_sq += x[i] * x[i];
    }
    assert_int_equal(sum_add_cpu(NULL, DT_F64, &sum, x, N), 0);
    assert_int_equal(sumsq_add_cpu(NULL, DT_F64, &sumsq, x, N), 0);
    assert_true(fabs(sum - want) <= 1e-11 && fabs(sumsq - want_sq) <= 1e-11);
    assert_int_equal(sumsq_add_cpu(NULL, DT_F64, &sumsq, x, 0), 0);
    assert_true(fabs(sumsq - want_sq) <= 1e-11);
    free(x);
}

static void test_clip_scale(void **state)
{
    double sumsq = 25, norm, scale;

    (void)state;
    assert_int_equal(clip_scale_cpu(NULL, &norm, &scale, &sumsq, 1, 1), 0);
    assert_true(norm == 5 && fabs(scale - 0.2) <= 1e-15);
    assert_int_equal(clip_scale_cpu(NULL, &norm, &scale, &sumsq, 10, 1), 0);
    assert_true(scale == 1);
    assert_int_equal(clip_scale_cpu(NULL, &norm, &scale, &sumsq, 0, 1), 0);
    assert_true(scale == 1);
    /* Gradients of a loss that was scaled by 4: their norm is 5 / 4. */
    assert_int_equal(clip_scale_cpu(NULL, &norm, &scale, &sumsq, 1, 0.25), 0);
    assert_true(norm == 1.25 && fabs(scale - 0.2) <= 1e-15);
    assert_int_equal(clip_scale_cpu(NULL, &norm, &scale, &sumsq, 0, 0.25), 0);
    assert_true(scale == 0.25);
    sumsq = INFINITY;
    assert_int_equal(clip_scale_cpu(NULL, &norm, &scale, &sumsq, 1, 1), 0);
    assert_true(isnan(scale));
}

/* One bad gradient among many, and not only of the squares: the step is known to be lost. */
static void test_a_gradient_that_is_not_finite_shows(void **state)
{
    static float x[1000];
    const float bad[] = {INFINITY, -INFINITY, NAN};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        double sumsq = 0, norm, scale;

        x[997] = bad[i];
        assert_int_equal(sumsq_add_cpu(NULL, DT_F32, &sumsq, x, ARRAY_LEN(x)), 0);
        assert_int_equal(clip_scale_cpu(NULL, &norm, &scale, &sumsq, 1, 0x1p-16), 0);
        assert_true(!isfinite(norm) && isnan(scale));
    }
    x[997] = 3e38f; /* whose square no f32 holds */
    double sumsq = 0, norm, scale;
    assert_int_equal(sumsq_add_cpu(NULL, DT_F32, &sumsq, x, ARRAY_LEN(x)), 0);
    assert_int_equal(clip_scale_cpu(NULL, &norm, &scale, &sumsq, 1, 1), 0);
    assert_true(isfinite(norm) && scale > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_add_up),
        cmocka_unit_test(test_clip_scale),
        cmocka_unit_test(test_a_gradient_that_is_not_finite_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
