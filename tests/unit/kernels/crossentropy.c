#include "kernels/crossentropy.h"

#include <string.h>

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

/* Ranks that share out a vocabulary give what one gives that has all of it; the last of four has no
 * token. */
static void expect_cut_as_whole(int ranks, int64_t vocab, int64_t each)
{
    int64_t all = ranks * each;
    double *x = finite_array(ROWS * all), *dx = finite_zeros(ROWS * all), loss[ROWS];
    double *part = finite_zeros(ROWS * each), *tally = finite_zeros(ranks * ROWS * 3);
    int32_t wanted[ROWS] = {0, (int32_t)vocab - 1, -1, (int32_t)vocab / 2, 5};

    assert_int_equal(crossentropy_cpu(NULL, DT_F64, loss, dx, x, wanted, ROWS, vocab, all, 0.25),
                     0);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < ranks; i++) {
            int64_t first = i * each, n = vocab - first < each ? vocab - first : each;
            double got[ROWS];

            n = n < 0 ? 0 : n;
            for (int r = 0; r < ROWS; r++) {
                memcpy(part + r * each, x + r * all + first, (size_t)each * sizeof *x);
            }
            if (turn == 0) {
                assert_int_equal(crossentropy_tally_cpu(NULL, DT_F64, tally + i * ROWS * 3, part,
                                                        wanted, ROWS, first, n, each),
                                 0);
                continue;
            }
            assert_int_equal(crossentropy_join_cpu(NULL, DT_F64, got, part, part, tally, ranks,
                                                   wanted, ROWS, first, n, each, 0.25),
                             0);
            for (int r = 0; r < ROWS; r++) {
                assert_true(fabs(got[r] - loss[r]) <= 1e-14 * (1 + loss[r]));
                for (int64_t v = 0; v < each; v++) {
                    assert_true(fabs(part[r * each + v] - dx[r * all + first + v]) <= 1e-14);
                }
            }
        }
    }
    free(x);
    free(dx);
    free(part);
    free(tally);
}

static void test_cut_as_whole(void **state)
{
    (void)state;
    expect_cut_as_whole(1, 11, 16);
    expect_cut_as_whole(2, 31, 16);
    expect_cut_as_whole(3, 301, 128);
    expect_cut_as_whole(4, 90, 32);
}

static void test_a_nan_of_one_rank_reaches_all(void **state)
{
    double x[2] = {1, 2}, bad[2] = {3, NAN}, tally[6], loss;
    int32_t t = 0;

    (void)state;
    assert_int_equal(crossentropy_tally_cpu(NULL, DT_F64, tally, x, &t, 1, 0, 2, 2), 0);
    assert_int_equal(crossentropy_tally_cpu(NULL, DT_F64, tally + 3, bad, &t, 1, 2, 2, 2), 0);
    assert_int_equal(crossentropy_join_cpu(NULL, DT_F64, &loss, x, x, tally, 2, &t, 1, 0, 2, 2, 1),
                     0);
    assert_true(isnan(loss) && isnan(x[0]) && isnan(x[1]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_in_place_and_huge_logits),
        cmocka_unit_test(test_nan_spreads_over_its_row),
        cmocka_unit_test(test_uniform_is_log_of_vocab),
        cmocka_unit_test(test_cut_as_whole),
        cmocka_unit_test(test_a_nan_of_one_rank_reaches_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
