#include "kernels/orthonormal.h"

#include <string.h>

#include "common/base/err.h"
#include "tests/unit/kernels/finite.h"

/* x'x is 1. */
static void expect_orthonormal(const double *x, int rows, int cols, double bound)
{
    for (int i = 0; i < cols; i++) {
        for (int j = 0; j <= i; j++) {
            double sum = 0;

            for (int r = 0; r < rows; r++) {
                sum += x[r * cols + i] * x[r * cols + j];
            }
            assert_true(fabs(sum - (i == j)) <= bound);
        }
    }
}

/* What of `was` is outside of the span of x, beside the whole. */
static void expect_same_span(const double *was, const double *x, int rows, int cols, double bound)
{
    for (int j = 0; j < cols; j++) {
        double outside = 0, all = 0;

        for (int r = 0; r < rows; r++) {
            double left = was[r * cols + j];

            all += left * left;
            for (int i = 0; i < cols; i++) {
                double common = 0;

                for (int s = 0; s < rows; s++) {
                    common += x[s * cols + i] * was[s * cols + j];
                }
                left -= common * x[r * cols + i];
            }
            outside += left * left;
        }
        assert_true(sqrt(outside) <= bound * sqrt(all));
    }
}

static double *copy_of(const double *x, int n)
{
    double *y = mem_array((size_t)n, sizeof *y);

    memcpy(y, x, (size_t)n * sizeof *y);
    return y;
}

static void test_span_stays(void **state)
{
    static const int shapes[][2] = {{1, 1}, {7, 1}, {5, 5}, {33, 4}, {100, 17}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        int rows = shapes[i][0], cols = shapes[i][1], n = rows * cols;
        double *x = finite_array(n), *was = copy_of(x, n);

        assert_int_equal(orthonormalize_cpu(NULL, DT_F64, x, rows, cols, 1), 0);
        expect_orthonormal(x, rows, cols, 1e-14);
        expect_same_span(was, x, rows, cols, 1e-13);
        free(x);
        free(was);
    }
}

/* Columns that differ by little, of a size whose squares f32 does not hold. */
static void test_nearly_dependent_columns(void **state)
{
    enum { ROWS = 50, COLS = 6, N = ROWS * COLS };
    double *x = finite_array(N), *wide = mem_array(N, sizeof *wide);
    float narrow[N];

    (void)state;
    for (int i = 0; i < N; i++) {
        x[i] = x[i / COLS * COLS] + 1e-9 * x[i];
        narrow[i] = (float)(1e25 * x[i / COLS * COLS] * (1 + 1e-4 * x[i]));
    }
    assert_int_equal(orthonormalize_cpu(NULL, DT_F64, x, ROWS, COLS, 1), 0);
    expect_orthonormal(x, ROWS, COLS, 1e-14);
    assert_int_equal(orthonormalize_cpu(NULL, DT_F32, narrow, ROWS, COLS, 1), 0);
    for (int i = 0; i < N; i++) {
        wide[i] = (double)narrow[i];
    }
    expect_orthonormal(wide, ROWS, COLS, 1e-6);
    free(x);
    free(wide);
}

/* A zero matrix becomes directions of the seed's; a column that is twice another one becomes
 * one. */
static void test_no_direction_is_lost(void **state)
{
    enum { ROWS = 9, COLS = 3, N = ROWS * COLS };
    double zero[3][N] = {{0}}, *x = finite_array(N), *was;

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(orthonormalize_cpu(NULL, DT_F64, zero[i], ROWS, COLS, i < 2 ? 5 : 6), 0);
        expect_orthonormal(zero[i], ROWS, COLS, 1e-14);
    }
    assert_memory_equal(zero[0], zero[1], sizeof zero[0]);
    assert_true(memcmp(zero[0], zero[2], sizeof zero[0]) != 0);
    for (int r = 0; r < ROWS; r++) {
        x[r * COLS + 1] = 2 * x[r * COLS];
    }
    was = copy_of(x, N);
    assert_int_equal(orthonormalize_cpu(NULL, DT_F64, x, ROWS, COLS, 5), 0);
    expect_orthonormal(x, ROWS, COLS, 1e-14);
    expect_same_span(was, x, ROWS, COLS, 1e-13);
    free(x);
    free(was);
}

static void test_what_is_not_finite_shows(void **state)
{
    double x[6] = {1, 2, 3, NAN, 5, 6}, y[6] = {INFINITY, 2, 3, 4, 5, 6};

    (void)state;
    assert_int_equal(orthonormalize_cpu(NULL, DT_F64, x, 3, 2, 1), 0);
    assert_int_equal(orthonormalize_cpu(NULL, DT_F64, y, 3, 2, 1), 0);
    assert_true(isnan(x[1]) && isnan(x[3]) && isnan(y[0]) && isnan(y[1]));
}

static void test_16_bits_are_refused(void **state)
{
    uint16_t x = 0;

    (void)state;
    assert_int_equal(orthonormalize_cpu(NULL, DT_BF16, &x, 1, 1, 1), E_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_span_stays),
        cmocka_unit_test(test_nearly_dependent_columns),
        cmocka_unit_test(test_no_direction_is_lost),
        cmocka_unit_test(test_what_is_not_finite_shows),
        cmocka_unit_test(test_16_bits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
