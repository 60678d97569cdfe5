#include "kernels/rmsnorm.h"

#include <string.h>

#include "kernels/bias.h"
#include "tests/unit/kernels/finite.h"

struct net {
    int64_t rows, cols;
    double *x, *g, *y, *rstd, *weight;
};

static double value(void *arg)
{
    struct net *t = arg;

    assert_int_equal(
        rmsnorm_forward_cpu(NULL, DT_F64, t->y, t->rstd, t->x, t->g, t->rows, t->cols, 1e-5), 0);
    return finite_dot(t->y, t->weight, t->rows * t->cols);
}

static void differences(int64_t rows, int64_t cols)
{
    int64_t n = rows * cols;
    struct net t = {rows,
                    cols,
                    finite_array(n),
                    finite_array(cols),
                    finite_zeros(n),
                    finite_zeros(rows),
                    finite_array(n)};
    double *dx = finite_zeros(n), *dg = finite_zeros(cols);
    double *dsum = finite_array(cols), *want = finite_zeros(cols);

    for (int64_t i = 0; i < n; i++) {
        dx[i] = 0.5; /* backward adds */
    }
    memcpy(want, dsum, (size_t)cols * sizeof *want);
    value(&t);
    assert_int_equal(
        rmsnorm_backward_cpu(NULL, DT_F64, dx, dg, dsum, t.weight, t.x, t.g, t.rstd, rows, cols),
        0);
    assert_int_equal(bias_backward_cpu(NULL, DT_F64, want, dx, rows, cols), 0);
    for (int64_t c = 0; c < cols; c++) {
        assert_true(dsum[c] == want[c]);
    }
    finite_check("dx", value, &t, t.x, dx, 0.5, n);
    finite_check("dg", value, &t, t.g, dg, 0, cols);
    for (size_t i = 0; i < 5; i++) {
        free((double *[]){t.x, t.g, t.y, t.rstd, t.weight}[i]);
    }
    free(dx);
    free(dsum);
    free(want);
    free(dg);
}

static void test_differences(void **state)
{
    (void)state;
    differences(1, 5);
    differences(7, 33);
    differences(3, 64);
    differences(0, 4);
}

static void test_known(void **state)
{
    float x[4] = {1, -1, 7, 7}, g[4] = {1, 2, 1, 1}, y[4], rstd;

    (void)state;
    assert_int_equal(rmsnorm_forward_cpu(NULL, DT_F32, y, &rstd, x, g, 1, 4, 0), 0);
    assert_float_equal(rstd, 0.2f, 1e-7f); /* the mean square is 25 */
    assert_float_equal(y[0], 0.2f, 1e-6f);
    assert_float_equal(y[1], -0.4f, 1e-6f);
    assert_float_equal(y[3], 1.4f, 1e-6f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
