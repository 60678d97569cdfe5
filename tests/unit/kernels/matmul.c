#include "kernels/matmul.h"

#include "kernels/gelu.h"
#include "tests/unit/kernels/finite.h"

enum { BIAS = 1, RESIDUAL = 2, PRE_GELU = 4, GELU_AT = 8 };

struct operands {
    int64_t m, n, k;
    unsigned flags;
    double *c, *a, *b, *bias, *residual, *pre_gelu, *gelu_at;
};

static struct operands make(int64_t m, int64_t n, int64_t k, unsigned flags, unsigned tail)
{
    return (struct operands){.m = m,
                             .n = n,
                             .k = k,
                             .flags = flags,
                             .c = finite_array(m * n),
                             .a = finite_array(m * k),
                             .b = finite_array(k * n),
                             .bias = tail & BIAS ? finite_array(n) : NULL,
                             .residual = tail & RESIDUAL ? finite_array(m * n) : NULL,
                             .pre_gelu = tail & PRE_GELU ? finite_array(m * n) : NULL,
                             .gelu_at = tail & GELU_AT ? finite_array(m * n) : NULL};
}

static void drop(struct operands *x)
{
    double *all[] = {x->c, x->a, x->b, x->bias, x->residual, x->pre_gelu, x->gelu_at};

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        free(all[i]);
    }
}

/* Three loops. */
static double sum_at(const struct operands *x, int64_t i, int64_t j)
{
    bool adds = (x->flags & (MATMUL_ADD | MATMUL_SUB)) != 0;
    double sum = 0;

    for (int64_t p = 0; p < x->k; p++) {
        sum += (x->flags & MATMUL_TA ? x->a[p * x->m + i] : x->a[i * x->k + p]) *
               (x->flags & MATMUL_TB ? x->b[j * x->k + p] : x->b[p * x->n + j]);
    }
    sum = x->flags & MATMUL_SUB ? -sum : sum;
    sum += adds ? x->c[i * x->n + j] : 0;
    sum += x->bias != NULL ? x->bias[j] : 0;
    return sum + (x->residual != NULL ? x->residual[i * x->n + j] : 0);
}

static void near(const struct operands *x, const char *what, const double *got, const double *want)
{
    for (int64_t i = 0; i < x->m * x->n; i++) {
        if (!(fabs(got[i] - want[i]) <= 1e-12 * (double)x->k)) {
            fail_msg("%lldx%lldx%lld flags %u: %s[%lld] is %g, not %g", (long long)x->m,
                     (long long)x->n, (long long)x->k, x->flags, what, (long long)i, got[i],
                     want[i]);
        }
    }
}

static void compare(int64_t m, int64_t n, int64_t k, unsigned flags, unsigned with)
{
    struct operands x = make(m, n, k, flags, with);
    struct matmul_tail tail = {x.bias, x.residual, x.pre_gelu, x.gelu_at};
    double *sum = finite_zeros(m * n), *want = finite_zeros(m * n);

    for (int64_t i = 0; i < m * n; i++) {
        sum[i] = want[i] = sum_at(&x, i / n, i % n);
    }
    if (with & PRE_GELU) {
        assert_int_equal(gelu_forward_cpu(NULL, DT_F64, want, sum, m * n), 0);
    }
    if (with & GELU_AT) {
        assert_int_equal(gelu_backward_cpu(NULL, DT_F64, want, sum, x.gelu_at, m * n), 0);
    }
    assert_int_equal(
        matmul_cpu(NULL, DT_F64, DT_F64, x.c, x.a, x.b, m, n, k, flags, with ? &tail : NULL), 0);
    near(&x, "c", x.c, want);
    if (with & PRE_GELU) {
        near(&x, "pre_gelu", x.pre_gelu, sum);
    }
    free(sum);
    free(want);
    drop(&x);
}

/* Every way of storing the operands, every tail. */
static void test_against_three_loops(void **state)
{
    static const int64_t shape[][3] = {
        {1, 1, 1}, {5, 7, 3}, {33, 1, 17}, {1, 65, 9}, {300, 530, 5}};

    (void)state;
    for (size_t s = 0; s < ARRAY_LEN(shape); s++) {
        for (unsigned turn = 0; turn < 12; turn++) {
            unsigned flags = turn < 8 ? turn : turn - 8 + MATMUL_SUB;
            unsigned tails = flags & (MATMUL_ADD | MATMUL_SUB) ? 1 : PRE_GELU + GELU_AT;

            for (unsigned with = 0; with < tails; with++) {
                compare(shape[s][0], shape[s][1], shape[s][2], flags, with);
            }
        }
    }
}

static void test_no_rows(void **state)
{
    float c = 7;

    (void)state;
    assert_int_equal(matmul_cpu(NULL, DT_F32, DT_F32, &c, &c, &c, 0, 1, 1, 0, NULL), 0);
    assert_true(c == 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_three_loops),
        cmocka_unit_test(test_no_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
