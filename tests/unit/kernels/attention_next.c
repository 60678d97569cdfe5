#include "kernels/attention_next.h"

#include <string.h>

#include "kernels/ops.h"
#include "tests/unit/kernels/finite.h"

/* A qkv of `keys` tokens and the cache that its keys and values make; what lies behind them is
 * NaN. */
struct sequence {
    struct attention_shape s;
    double *qkv, *cache, *out, *lse;
    int64_t step, row, room;
};

static struct sequence sequence_of(struct attention_shape s, int64_t room)
{
    struct sequence q = {.s = s,
                         .step = (s.heads + 2 * s.kv_heads) * s.head_dim,
                         .row = 2 * s.kv_heads * s.head_dim,
                         .room = room};
    int64_t out = s.heads * s.head_dim;

    q.qkv = finite_array(s.batch * s.seq * q.step);
    q.cache = finite_zeros(s.batch * room * q.row);
    q.out = finite_zeros(s.batch * s.seq * out);
    q.lse = finite_zeros(s.batch * s.heads * s.seq);
    for (int64_t i = 0; i < s.batch * room * q.row; i++) {
        q.cache[i] = (double)NAN;
    }
    for (int64_t b = 0; b < s.batch; b++) {
        assert_int_equal(
            mem_copy_rows_cpu(NULL, q.cache + b * room * q.row, (size_t)q.row * sizeof(double),
                              q.qkv + b * s.seq * q.step + out, (size_t)q.step * sizeof(double),
                              (size_t)q.row * sizeof(double), s.seq),
            0);
    }
    assert_int_equal(attention_forward_cpu(NULL, DT_F64, q.out, q.lse, q.qkv, &s, NULL), 0);
    return q;
}

static void drop(struct sequence *q)
{
    free(q->qkv);
    free(q->cache);
    free(q->out);
    free(q->lse);
}

static void *as(enum dtype dt, const double *x, int64_t n)
{
    void *y = mem_array((size_t)n + 1, dtype_bytes(dt));

    assert_int_equal(convert_cpu(NULL, dt, y, DT_F64, x, n), 0);
    return y;
}

/* The last token's row by one operation and by the other. */
static void same_as_all(struct attention_shape s, int64_t room, enum dtype dt, double tolerance)
{
    struct sequence q = sequence_of(s, room);
    struct attention_shape cached = s;
    int64_t out = s.heads * s.head_dim;
    double *last = finite_zeros(s.batch * q.step), *got = finite_zeros(s.batch * out);
    void *x, *cache, *y = mem_array((size_t)(s.batch * out) + 1, sizeof(double));

    cached.seq = room;
    for (int64_t b = 0; b < s.batch; b++) {
        memcpy(last + b * q.step, q.qkv + ((b + 1) * s.seq - 1) * q.step,
               (size_t)q.step * sizeof *last);
    }
    x = as(dt, last, s.batch * q.step);
    cache = as(dt, q.cache, s.batch * room * q.row);
    assert_int_equal(attention_next_cpu(NULL, dt, y, x, cache, &cached, s.seq), 0);
    assert_int_equal(convert_cpu(NULL, DT_F64, got, dt, y, s.batch * out), 0);
    for (int64_t b = 0; b < s.batch; b++) {
        for (int64_t i = 0; i < out; i++) {
            double want = q.out[((b + 1) * s.seq - 1) * out + i];

            if (!(fabs(got[b * out + i] - want) <= tolerance * fmax(1, fabs(want)))) {
                fail_msg("%lld, %lld: %.15g, all at once %.15g", (long long)b, (long long)i,
                         got[b * out + i], want);
            }
        }
    }
    free(last);
    free(got);
    free(x);
    free(cache);
    free(y);
    drop(&q);
}

static void test_same_as_all_at_once(void **state)
{
    static const struct attention_shape shape[] = {
        {1, 1, 1, 1, 1, false},  {2, 7, 3, 3, 5, false},    {1, 9, 4, 2, 8, false},
        {3, 70, 6, 1, 6, false}, {1, 300, 8, 2, 64, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        same_as_all(shape[i], shape[i].seq, DT_F64, 1e-12);
        same_as_all(shape[i], shape[i].seq + 3, DT_F64, 1e-12);
        same_as_all(shape[i], shape[i].seq + 1, DT_F32, 1e-5);
        same_as_all(shape[i], shape[i].seq + 1, DT_BF16, 2e-2);
        same_as_all(shape[i], shape[i].seq + 1, DT_F16, 3e-3);
    }
}

static void test_wide_heads_and_nobody(void **state)
{
    struct attention_shape none = {0, 4, 2, 2, 8, false},
                           wide = {1, 1, 1, 1, ATTENTION_MAX_HEAD_DIM + 1, false};

    (void)state;
    assert_int_equal(attention_next_cpu(NULL, DT_F32, NULL, NULL, NULL, &none, 1), 0);
    assert_true(attention_next_cpu(NULL, DT_F32, NULL, NULL, NULL, &wide, 1) != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_all_at_once),
        cmocka_unit_test(test_wide_heads_and_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
