#include "kernels/swiglu.h"

#include <string.h>

#include "tests/unit/kernels/finite.h"

struct net {
    int64_t rows, cols;
    double *x, *y, *weight;
};

static double value(void *arg)
{
    struct net *t = arg;

    assert_int_equal(swiglu_forward_cpu(NULL, DT_F64, t->y, t->x, t->rows, t->cols), 0);
    return finite_dot(t->y, t->weight, t->rows * t->cols);
}

static void differences(int64_t rows, int64_t cols)
{
    int64_t n = rows * cols;
    struct net t = {rows, cols, finite_array(2 * n), finite_zeros(n), finite_array(n)};
    double *dx = finite_zeros(2 * n);

    for (int64_t i = 0; i < 2 * n; i++) {
        t.x[i] *= 4;
    }
    assert_int_equal(swiglu_backward_cpu(NULL, DT_F64, dx, t.weight, t.x, rows, cols), 0);
    finite_check("dx", value, &t, t.x, dx, 0, 2 * n);
    /* In place it is the same. */
    assert_int_equal(swiglu_backward_cpu(NULL, DT_F64, t.x, t.weight, t.x, rows, cols), 0);
    assert_memory_equal(t.x, dx, (size_t)(2 * n) * sizeof *dx);
    free(t.x);
    free(t.y);
    free(t.weight);
    free(dx);
}

static void test_differences(void **state)
{
    (void)state;
    differences(1, 1);
    differences(1, 67);
    differences(5, 19);
    differences(0, 8);
}

static void test_definition_far_out(void **state)
{
    float x[8] = {-1e4f, 1e4f, 1, 0, 3, 2, 2, 5}, y[4];

    (void)state;
    assert_int_equal(swiglu_forward_cpu(NULL, DT_F32, y, x, 1, 4), 0);
    assert_true(y[0] == 0 && y[1] == 2e4f && y[3] == 0);
    assert_float_equal(y[2], 1.4621172f, 1e-6f); /* 2 / (1 + 1/e) */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_definition_far_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
