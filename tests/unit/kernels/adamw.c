#include "kernels/adamw.h"

#include "tests/unit/kernels/finite.h"

static struct adamw_step step_at(int t)
{
    return (struct adamw_step){.lr = 0.1,
                               .beta1 = 0.9,
                               .beta2 = 0.95,
                               .eps = 1e-8,
                               .decay = 0.01,
                               .correct1 = 1 - pow(0.9, t),
                               .correct2 = 1 - pow(0.95, t)};
}

/* Three steps by hand: with a constant gradient, m / c1 and sqrt(v / c2) are |g| again, so each
 * step is lr * sign. */
static void test_constant_gradient(void **state)
{
    double p[2] = {1, -2}, m[2] = {0}, v[2] = {0}, g[2] = {3, -0.5}, one = 1;
    double want[2] = {1, -2};

    (void)state;
    for (int t = 1; t <= 3; t++) {
        struct adamw_step how = step_at(t);

        assert_int_equal(adamw_cpu(NULL, DT_F64, p, NULL, m, v, g, 2, &one, &how), 0);
        want[0] -= 0.1 * (1 + 0.01 * want[0]);
        want[1] -= 0.1 * (-1 + 0.01 * want[1]);
        assert_true(fabs(p[0] - want[0]) <= 1e-8 && fabs(p[1] - want[1]) <= 1e-7);
    }
}

static void test_scale_and_skip(void **state)
{
    double p[2] = {1, 1}, m[2] = {0}, v[2] = {0}, g[2] = {8, 1}, part = 0.125, nan_scale = NAN;
    struct adamw_step how = step_at(1);

    (void)state;
    assert_int_equal(adamw_cpu(NULL, DT_F64, p, NULL, m, v, g, 1, &part, &how), 0);
    assert_true(fabs(m[0] - 0.1) <= 1e-15 && fabs(v[0] - 0.05) <= 1e-15);
    assert_true(p[1] == 1 && m[1] == 0);
    double keep = p[0];
    assert_int_equal(adamw_cpu(NULL, DT_F64, p, NULL, m, v, g, 2, &nan_scale, &how), 0);
    assert_true(p[0] == keep && p[1] == 1 && v[1] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constant_gradient),
        cmocka_unit_test(test_scale_and_skip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
