#include "kernels/gelu.h"

#include "tests/unit/kernels/finite.h"

enum { N = 67 };

struct net {
    double *x, *y, *weight;
};

static double value(void *arg)
{
    struct net *t = arg;

    assert_int_equal(gelu_forward_cpu(NULL, DT_F64, t->y, t->x, N), 0);
    return finite_dot(t->y, t->weight, N);
}

static void test_differences(void **state)
{
    struct net t = {finite_array(N), finite_zeros(N), finite_array(N)};
    double *dx = finite_zeros(N);

    (void)state;
    for (int i = 0; i < N; i++) {
        t.x[i] *= 4;
    }
    assert_int_equal(gelu_backward_cpu(NULL, DT_F64, dx, t.weight, t.x, N), 0);
    finite_check("dx", value, &t, t.x, dx, 0, N);
    free(t.x);
    free(t.y);
    free(t.weight);
    free(dx);
}

static void test_equals_the_tanh_form(void **state)
{
    (void)state;
    for (double x = -6; x < 6; x += 0.01) {
        double y, u = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);

        assert_int_equal(gelu_forward_cpu(NULL, DT_F64, &y, &x, 1), 0);
        assert_true(fabs(y - 0.5 * x * (1 + tanh(u))) <= 1e-14);
    }
}

static void test_far_out_values_stay_finite(void **state)
{
    float x[4] = {-1e4f, 1e4f, -50, 50}, y[4], dx[4], dy[4] = {1, 1, 1, 1};

    (void)state;
    assert_int_equal(gelu_forward_cpu(NULL, DT_F32, y, x, 4), 0);
    assert_int_equal(gelu_backward_cpu(NULL, DT_F32, dx, dy, x, 4), 0);
    assert_true(y[0] == 0 && y[1] == 1e4f && y[2] == 0 && y[3] == 50);
    assert_true(dx[0] == 0 && dx[1] == 1 && dx[2] == 0 && dx[3] == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_equals_the_tanh_form),
        cmocka_unit_test(test_far_out_values_stay_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
