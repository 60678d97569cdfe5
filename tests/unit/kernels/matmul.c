#include "kernels/matmul.h"

#include "tests/unit/kernels/finite.h"

/* Against three loops, for every way of storing the operands. */
static void compare(int64_t m, int64_t n, int64_t k, unsigned flags, bool with_bias)
{
    double *a = finite_array(m * k), *b = finite_array(k * n), *c = finite_array(m * n);
    double *bias = with_bias ? finite_array(n) : NULL, *want = finite_zeros(m * n);

    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = bias != NULL ? bias[j] : flags & MATMUL_ADD ? c[i * n + j] : 0;

            for (int64_t x = 0; x < k; x++) {
                sum += (flags & MATMUL_TA ? a[x * m + i] : a[i * k + x]) *
                       (flags & MATMUL_TB ? b[j * k + x] : b[x * n + j]);
            }
            want[i * n + j] = sum;
        }
    }
    assert_int_equal(matmul_cpu(NULL, DT_F64, c, a, b, bias, m, n, k, flags), 0);
    for (int64_t i = 0; i < m * n; i++) {
        if (!(fabs(c[i] - want[i]) <= 1e-12 * (double)k)) {
            fail_msg("%lldx%lldx%lld flags %u: [%lld] is %g, not %g", (long long)m, (long long)n,
                     (long long)k, flags, (long long)i, c[i], want[i]);
        }
    }
    free(a);
    free(b);
    free(c);
    free(bias);
    free(want);
}

static void test_all_layouts(void **state)
{
    static const int64_t shape[][3] = {
        {1, 1, 1}, {5, 7, 3}, {33, 1, 17}, {1, 65, 9}, {300, 530, 5}};

    (void)state;
    for (size_t s = 0; s < ARRAY_LEN(shape); s++) {
        for (unsigned flags = 0; flags < 8; flags++) {
            compare(shape[s][0], shape[s][1], shape[s][2], flags, false);
            if ((flags & MATMUL_ADD) == 0) {
                compare(shape[s][0], shape[s][1], shape[s][2], flags, true);
            }
        }
    }
}

static void test_no_rows(void **state)
{
    float c = 7;

    (void)state;
    assert_int_equal(matmul_cpu(NULL, DT_F32, &c, &c, &c, NULL, 0, 1, 1, 0), 0);
    assert_true(c == 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_layouts),
        cmocka_unit_test(test_no_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
