#include "kernels/attention.h"

#include <string.h>

#include "tests/unit/kernels/finite.h"

struct net {
    struct attention_shape s;
    double *qkv, *out, *lse, *weight;
};

static double value(void *arg)
{
    struct net *t = arg;

    assert_int_equal(attention_forward_cpu(NULL, DT_F64, t->out, t->lse, t->qkv, &t->s, NULL), 0);
    return finite_dot(t->out, t->weight, t->s.batch * t->s.seq * t->s.heads * t->s.head_dim);
}

static void differences(struct attention_shape s)
{
    int64_t n = s.batch * s.seq * (s.heads + 2 * s.kv_heads) * s.head_dim;
    int64_t o = s.batch * s.seq * s.heads * s.head_dim;
    struct net t = {s, finite_array(n), finite_zeros(o), finite_zeros(s.batch * s.heads * s.seq),
                    finite_array(o)};
    double *dqkv = finite_array(n); /* overwritten, whatever it held */

    value(&t);
    assert_int_equal(
        attention_backward_cpu(NULL, DT_F64, dqkv, t.weight, t.qkv, t.out, t.lse, &s, NULL), 0);
    finite_check("dqkv", value, &t, t.qkv, dqkv, 0, n);
    free(t.qkv);
    free(t.out);
    free(t.lse);
    free(t.weight);
    free(dqkv);
}

static void test_differences(void **state)
{
    (void)state;
    differences((struct attention_shape){1, 1, 1, 1, 1, false});
    differences((struct attention_shape){2, 7, 3, 3, 5, false});
    differences((struct attention_shape){1, 9, 4, 2, 8, false}); /* grouped queries */
    differences((struct attention_shape){2, 5, 4, 1, 6, false});
    differences((struct attention_shape){1, 67, 2, 1, 2, false}); /* more queries than a tile's */
}

/* Against the definition, with all scores written out. */
static void test_definition(void **state)
{
    enum { T = 6, D = 3 };
    struct attention_shape s = {1, T, 1, 1, D, false};
    double *qkv = finite_array(T * 3 * D), *out = finite_zeros(T * D), lse[T];

    (void)state;
    for (int i = 0; i < T * 3 * D; i++) {
        qkv[i] *= 20; /* large scores: the running maximum must move */
    }
    assert_int_equal(attention_forward_cpu(NULL, DT_F64, out, lse, qkv, &s, NULL), 0);
    for (int t = 0; t < T; t++) {
        double p[T], sum = 0;

        for (int j = 0; j <= t; j++) {
            p[j] = exp(finite_dot(qkv + t * 3 * D, qkv + j * 3 * D + D, D) / sqrt(D));
            sum += p[j];
        }
        for (int d = 0; d < D; d++) {
            double want = 0;
            for (int j = 0; j <= t; j++) {
                want += p[j] / sum * qkv[j * 3 * D + 2 * D + d];
            }
            assert_true(fabs(want - out[t * D + d]) <= 1e-9 * fmax(1, fabs(want)));
        }
        assert_true(fabs(lse[t] - log(sum)) <= 1e-9 * fmax(1, fabs(lse[t])));
    }
    free(qkv);
    free(out);
}

static void test_no_rows_and_wide_heads(void **state)
{
    struct attention_shape none = {0, 4, 2, 2, 8, false},
                           wide = {1, 1, 1, 1, ATTENTION_MAX_HEAD_DIM + 1, false};

    (void)state;
    assert_int_equal(attention_forward_cpu(NULL, DT_F32, NULL, NULL, NULL, &none, NULL), 0);
    assert_true(attention_forward_cpu(NULL, DT_F32, NULL, NULL, NULL, &wide, NULL) != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_no_rows_and_wide_heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
