#include "kernels/crossentropy.h"

#include "tests/unit/kernels/finite.h"

enum { ROWS = 5, VOCAB = 11, STRIDE = 16 };

static const int32_t target[ROWS] = {0, 10, -1, 3, 3};

/* The sum of the losses times the scale that backward was given. */
static double value(void *arg)
{
    double loss[ROWS], sum = 0;

    assert_int_equal(
        crossentropy_cpu(NULL, DT_F64, loss, NULL, arg, target, ROWS, VOCAB, STRIDE, 1), 0);
    for (int r = 0; r < ROWS; r++) {
        sum += loss[r] * 0.25;
    }
    return sum;
}

static void test_differences(void **state)
{
    double *x = finite_array(ROWS * STRIDE), *dx = finite_zeros(ROWS * STRIDE), loss[ROWS];

    (void)state;
    assert_int_equal(crossentropy_cpu(NULL, DT_F64, loss, dx, x, target, ROWS, VOCAB, STRIDE, 0.25),
                     0);
    finite_check("dlogits", value, x, x, dx, 0, ROWS * STRIDE);
    assert_true(loss[2] == 0);
    free(x);
    free(dx);
}

static void test_in_place_and_huge_logits(void **state)
{
    float x[4] = {1000, -1000, 0, 123}, loss;
    int32_t first = 0, second = 1;

    (void)state;
    assert_int_equal(crossentropy_cpu(NULL, DT_F32, &loss, NULL, x, &second, 1, 3, 4, 1), 0);
    assert_float_equal(loss, 2000, 1e-3f);
    assert_int_equal(crossentropy_cpu(NULL, DT_F32, &loss, x, x, &first, 1, 3, 4, 1), 0);
    assert_float_equal(loss, 0, 1e-6f);
    for (int i = 0; i < 4; i++) {
        assert_float_equal(x[i], 0, 1e-6f); /* the padding column too */
    }
}

/* A NaN among the logits reaches the loss and every gradient of its row, and no other row. */
static void test_nan_spreads_over_its_row(void **state)
{
    float x[8] = {1, NAN, 2, 3, 1, 2, 3, 4}, loss[2];
    int32_t t[2] = {0, 1};

    (void)state;
    assert_int_equal(crossentropy_cpu(NULL, DT_F32, loss, x, x, t, 2, 4, 4, 1), 0);
    assert_true(isnan(loss[0]) && isfinite(loss[1]));
    for (int i = 0; i < 4; i++) {
        assert_true(isnan(x[i]) && isfinite(x[4 + i]));
    }
}

static void test_uniform_is_log_of_vocab(void **state)
{
    double x[VOCAB] = {0}, loss;
    int32_t t = 4;

    (void)state;
    assert_int_equal(crossentropy_cpu(NULL, DT_F64, &loss, NULL, x, &t, 1, VOCAB, VOCAB, 1), 0);
    assert_true(fabs(loss - log(VOCAB)) <= 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_in_place_and_huge_logits),
        cmocka_unit_test(test_nan_spreads_over_its_row),
        cmocka_unit_test(test_uniform_is_log_of_vocab),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
