#include "kernels/convert.h"

#include "tests/unit/kernels/finite.h"

enum { N = 1000 };

static const enum dtype every[] = {DT_F32, DT_F64, DT_BF16, DT_F16};

/* From any type to any: what was rounded once survives every way that does not narrow it. */
static void test_any_to_any(void **state)
{
    double *x = finite_array(N), y[N], z[N];

    (void)state;
    for (size_t a = 0; a < ARRAY_LEN(every); a++) {
        double rounded[N];

        assert_int_equal(convert_cpu(NULL, every[a], y, DT_F64, x, N), 0);
        assert_int_equal(convert_cpu(NULL, DT_F64, rounded, every[a], y, N), 0);
        for (size_t b = 0; b < ARRAY_LEN(every); b++) {
            double once[N], twice[N];

            assert_int_equal(convert_cpu(NULL, every[b], z, every[a], y, N), 0);
            assert_int_equal(convert_cpu(NULL, DT_F64, twice, every[b], z, N), 0);
            assert_int_equal(convert_cpu(NULL, every[b], z, DT_F64, rounded, N), 0);
            assert_int_equal(convert_cpu(NULL, DT_F64, once, every[b], z, N), 0);
            assert_memory_equal(once, twice, sizeof once);
            if (dtype_bytes(every[b]) > dtype_bytes(every[a]) || a == b) {
                assert_memory_equal(twice, rounded, sizeof rounded);
            }
        }
    }
    free(x);
}

/* Half of the way up in bf16, and in f64 a little more or less: an f32 in between would not see
 * it. */
static void test_one_rounding(void **state)
{
    double x[3] = {1 + 0x1p-8, 1 + 0x1p-8 + 0x1p-50, 1 + 0x3p-8 - 0x1p-50};
    uint16_t y[3];

    (void)state;
    assert_int_equal(convert_cpu(NULL, DT_BF16, y, DT_F64, x, 3), 0);
    assert_int_equal(y[0], 0x3f80);
    assert_int_equal(y[1], 0x3f81);
    assert_int_equal(y[2], 0x3f81);
}

static void test_stochastic_depends_on_seed_step_and_number_alone(void **state)
{
    float x[N];
    uint16_t whole[N], other[N];
    struct noise noise = {.seed = 5, .step = 7, .first = 3};

    (void)state;
    for (int i = 0; i < N; i++) {
        x[i] = 1.001f;
    }
    assert_int_equal(convert_stochastic_cpu(NULL, DT_BF16, whole, x, N, &noise), 0);
    for (int i = 0; i < N; i += 10) { /* in pieces */
        struct noise part = {.seed = 5, .step = 7, .first = (uint64_t)(3 + i)};

        assert_int_equal(convert_stochastic_cpu(NULL, DT_BF16, other + i, x + i, 10, &part), 0);
    }
    assert_memory_equal(whole, other, sizeof whole);
    noise.step = 8;
    assert_int_equal(convert_stochastic_cpu(NULL, DT_BF16, other, x, N, &noise), 0);
    assert_memory_not_equal(whole, other, sizeof whole);
    noise = (struct noise){.seed = 6, .step = 7, .first = 3};
    assert_int_equal(convert_stochastic_cpu(NULL, DT_BF16, other, x, N, &noise), 0);
    assert_memory_not_equal(whole, other, sizeof whole);
}

/* Of a matrix that is cut by columns, each part is rounded as the whole is. */
static void test_stochastic_numbers_columns(void **state)
{
    enum { ROWS = 5, COLS = 10, LEFT = 4 };
    float x[ROWS * COLS], part[ROWS * (COLS - LEFT)];
    uint16_t whole[ROWS * COLS], got[ROWS * (COLS - LEFT)];
    struct noise noise = {.seed = 5, .step = 7, .first = 3};

    (void)state;
    for (int i = 0; i < ROWS * COLS; i++) {
        x[i] = 1.001f + (float)i;
    }
    assert_int_equal(convert_stochastic_cpu(NULL, DT_BF16, whole, x, ROWS * COLS, &noise), 0);
    for (int from = 0; from < COLS; from += LEFT == from ? COLS : LEFT) {
        int cols = from == 0 ? LEFT : COLS - LEFT;

        for (int i = 0; i < ROWS * cols; i++) {
            part[i] = x[i / cols * COLS + from + i % cols];
        }
        for (int i = 0, n = 7; i < ROWS * cols; i += n) { /* in pieces */
            n = ROWS * cols - i < n ? ROWS * cols - i : n;
            noise = (struct noise){.seed = 5,
                                   .step = 7,
                                   .first = (uint64_t)(3 + from),
                                   .cols = (uint64_t)cols,
                                   .whole_cols = COLS,
                                   .skip = (uint64_t)i};
            assert_int_equal(convert_stochastic_cpu(NULL, DT_BF16, got + i, part + i, n, &noise),
                             0);
        }
        for (int i = 0; i < ROWS * cols; i++) {
            assert_int_equal(got[i], whole[i / cols * COLS + from + i % cols]);
        }
    }
}

static void test_stochastic_keeps_the_mean(void **state)
{
    enum { MANY = 20000 };
    static const enum dtype narrow[] = {DT_BF16, DT_F16};
    const struct noise noise = {.seed = 1};
    float *x = mem_array(MANY, sizeof *x), *back = mem_array(MANY, sizeof *back);
    uint16_t *y = mem_array(MANY, sizeof *y);

    (void)state;
    for (int i = 0; i < MANY; i++) {
        x[i] = 1.0003f;
    }
    for (size_t t = 0; t < ARRAY_LEN(narrow); t++) {
        double sum = 0, step = t == 0 ? 0x1p-7 : 0x1p-10;

        assert_int_equal(convert_stochastic_cpu(NULL, narrow[t], y, x, MANY, &noise), 0);
        assert_int_equal(convert_cpu(NULL, DT_F32, back, narrow[t], y, MANY), 0);
        for (int i = 0; i < MANY; i++) {
            sum += (double)back[i];
        }
        /* The deviation of one is at most half a step, that of the mean sqrt(MANY) times less; four
         * of them. */
        assert_true(fabs(sum / MANY - 1.0003) <= 4 * step / 2 / sqrt(MANY));
    }
    free(x);
    free(y);
    free(back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_to_any),
        cmocka_unit_test(test_one_rounding),
        cmocka_unit_test(test_stochastic_depends_on_seed_step_and_number_alone),
        cmocka_unit_test(test_stochastic_numbers_columns),
        cmocka_unit_test(test_stochastic_keeps_the_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
