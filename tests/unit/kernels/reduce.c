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
    assert_int_equal(clip_scale_cpu(NULL, &norm, &scale, &sumsq, 1), 0);
    assert_true(norm == 5 && fabs(scale - 0.2) <= 1e-15);
    assert_int_equal(clip_scale_cpu(NULL, &norm, &scale, &sumsq, 10), 0);
    assert_true(scale == 1);
    assert_int_equal(clip_scale_cpu(NULL, &norm, &scale, &sumsq, 0), 0);
    assert_true(scale == 1);
    sumsq = INFINITY;
    assert_int_equal(clip_scale_cpu(NULL, &norm, &scale, &sumsq, 1), 0);
    assert_true(isnan(scale));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_add_up),
        cmocka_unit_test(test_clip_scale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
