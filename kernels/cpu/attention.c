#ifndef TYPE
#    include <cblas.h>
#    include <string.h>

#    include "common/base/check.h"
#    include "kernels/attention.h"

/* Queries taken at a time: so many rows of scores exist at once. They and their operands are reals
 * without gaps, which is what OpenBLAS wants. */
enum { TILE = 64 };

static inline int64_t tile_at(int64_t seq, int64_t t)
{
    return seq - t < TILE ? seq - t : TILE;
}

static inline int64_t attention_work(const struct attention_shape *s);

#    define BODY "kernels/cpu/attention.c"
#    include "kernels/cpu/each_real.h"

/* Two products with each score, half of which lie ahead of their query; in the unit of
 * PARALLEL_FROM. */
static inline int64_t attention_work(const struct attention_shape *s)
{
    int64_t scores = s->batch * s->heads * s->seq * s->seq / 2;

    return scores * EXPONENT + scores * 2 * s->head_dim / MULTIPLIES;
}

int attention_prepare_cpu(struct kstream *ks, enum dtype dt, const struct attention_shape *s,
                          bool for_training, struct attention_ready *out)
{
    (void)ks;
    (void)dt;
    (void)for_training;
    *out = (struct attention_ready){.by = "plain loops"};
    return s->head_dim > ATTENTION_MAX_HEAD_DIM ? E_UNSUPPORTED : 0;
}

int attention_forward_cpu(struct kstream *ks, enum dtype dt, void *out, void *lse, const void *qkv,
                          const struct attention_shape *s, void *scratch)
{
    (void)ks;
    (void)scratch;
    if (s->head_dim > ATTENTION_MAX_HEAD_DIM) {
        return E_UNSUPPORTED;
    }
    return EACH_REAL(dt, attention_forward, (out, lse, qkv, s));
}

int attention_backward_cpu(struct kstream *ks, enum dtype dt, void *dqkv, const void *dout,
                           const void *qkv, const void *out, const void *lse,
                           const struct attention_shape *s, void *scratch)
{
    (void)ks;
    (void)scratch;
    if (s->head_dim > ATTENTION_MAX_HEAD_DIM) {
        return E_UNSUPPORTED;
    }
    return EACH_REAL(dt, attention_backward, (dqkv, dout, qkv, out, lse, s));
}

#else

/* c = alpha * a * b + beta * c, [m, n] of [m, k] and [k, n]; a stored [k, m] with ta, b [n, k] with
 * tb. */
static void FN(attention_gemm)(bool ta, bool tb, int64_t m, int64_t n, int64_t k, real alpha,
                               const real *a, const real *b, real beta, real *c)
{
    GEMM(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (int)m,
         (int)n, (int)k, alpha, a, (int)(ta ? m : k), b, (int)(tb ? k : n), beta, c, (int)n);
}

/* `rows` pieces of a tensor, `step` apart, and back. */
static void FN(pack)(real *to, const elem *from, int64_t rows, int64_t step, int64_t dim)
{
    for (int64_t t = 0; t < rows; t++) {
        for (int64_t i = 0; i < dim; i++) {
            to[t * dim + i] = GET(from[t * step + i]);
        }
    }
}

static void FN(unpack_rows)(elem *to, const real *from, int64_t rows, int64_t step, int64_t dim)
{
    for (int64_t t = 0; t < rows; t++) {
        for (int64_t i = 0; i < dim; i++) {
            to[t * step + i] = PUT(from[t * dim + i]);
        }
    }
}

/* A row of scores becomes probabilities: of the keys up to the query; what lies behind it gets
 * 0. */
WIDE static void FN(softmax)(real *p, real *lse, int64_t keys, int64_t cols)
{
    real max = p[0], sum = 0;

#    pragma omp simd reduction(max : max)
    for (int64_t j = 1; j < keys; j++) {
        max = p[j] > max ? p[j] : max;
    }
#    pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < keys; j++) {
        p[j] = EXP(p[j] - max);
        sum += p[j];
    }
    for (int64_t j = 0; j < keys; j++) {
        p[j] /= sum;
    }
    for (int64_t j = keys; j < cols; j++) {
        p[j] = 0;
    }
    *lse = max + LOG(sum);
}

/* The query heads that share one key head. `room` holds 2 * (seq + TILE) rows of a head and TILE of
 * scores. */
static void FN(forward_group)(elem *out, real *lse, const elem *qkv,
                              const struct attention_shape *s, int64_t b, int64_t kv, real *room)
{
    int64_t dim = s->head_dim, wide = s->heads * dim, group = s->heads / s->kv_heads;
    int64_t step = wide + 2 * s->kv_heads * dim;
    const elem *first = qkv + b * s->seq * step, *keys = first + wide + kv * dim;
    real *k = room, *v = k + s->seq * dim, *q = v + s->seq * dim, *o = q + TILE * dim;
    real *p = o + TILE * dim, scale = 1 / SQRT((real)dim);

    FN(pack)(k, keys, s->seq, step, dim);
    FN(pack)(v, keys + s->kv_heads * dim, s->seq, step, dim);
    for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
        for (int64_t t = 0; t < s->seq; t += TILE) {
            int64_t n = tile_at(s->seq, t), seen = t + n;

            FN(pack)(q, first + t * step + h * dim, n, step, dim);
            FN(attention_gemm)(false, true, n, seen, dim, scale, q, k, 0, p);
            for (int64_t r = 0; r < n; r++) {
                FN(softmax)
                (p + r * seen, lse + (b * s->heads + h) * s->seq + t + r, t + r + 1, seen);
            }
            FN(attention_gemm)(false, false, n, dim, seen, 1, p, v, 0, o);
            FN(unpack_rows)(out + (b * s->seq + t) * wide + h * dim, o, n, wide, dim);
        }
    }
}

static void FN(attention_forward)(elem *out, real *lse, const elem *qkv,
                                  const struct attention_shape *s)
{
    size_t size = (size_t)(2 * (s->seq + TILE) * s->head_dim + TILE * s->seq) * sizeof(real);

#    pragma omp parallel if (attention_work(s) > PARALLEL_FROM)
    {
        void *room;

        CHECK(mem_alloc_cpu(&room, size) == 0);
#    pragma omp for collapse(2) schedule(dynamic)
        for (int64_t b = 0; b < s->batch; b++) {
            for (int64_t kv = 0; kv < s->kv_heads; kv++) {
                FN(forward_group)(out, lse, qkv, s, b, kv, room);
            }
        }
        mem_free_cpu(room);
    }
}

/* A row of backward: scores become P, and dO V^T becomes dS. */
WIDE static void FN(slope)(real *p, real *ds, const real *dout, const real *out, real lse,
                           int64_t keys, int64_t cols, int64_t dim)
{
    real scale = 1 / SQRT((real)dim), delta = 0;

#    pragma omp simd reduction(+ : delta)
    for (int64_t i = 0; i < dim; i++) {
        delta += dout[i] * out[i];
    }
#    pragma omp simd
    for (int64_t j = 0; j < keys; j++) {
        p[j] = EXP(p[j] - lse);
        ds[j] = scale * p[j] * (ds[j] - delta);
    }
    for (int64_t j = keys; j < cols; j++) {
        p[j] = ds[j] = 0;
    }
}

/* With P = exp(score - lse): dV = P^T dO, dS = P * (dO V^T - rowsum(dO * O)) / sqrt(d), dQ = dS K,
 * dK = dS^T Q. A key head's gradients come from all the query heads that share it: one thread takes
 * them in order. `room` holds 4 * (seq + TILE) rows of a head and 2 * TILE of scores. */
static void FN(backward_group)(elem *dqkv, const elem *dout, const elem *qkv, const elem *out,
                               const real *lse, const struct attention_shape *s, int64_t b,
                               int64_t kv, real *room)
{
    int64_t dim = s->head_dim, all = s->seq * dim, tile = TILE * dim, wide = s->heads * dim;
    int64_t step = wide + 2 * s->kv_heads * dim, group = s->heads / s->kv_heads;
    int64_t first = b * s->seq * step, k_at = first + wide + kv * dim;
    int64_t v_at = k_at + s->kv_heads * dim;
    real *k = room, *v = k + all, *dk = v + all, *dv = dk + all;
    real *q = dv + all, *dq = q + tile, *o = dq + tile, *d = o + tile;
    real *p = d + tile, *ds = p + TILE * s->seq, scale = 1 / SQRT((real)dim);

    FN(pack)(k, qkv + k_at, s->seq, step, dim);
    FN(pack)(v, qkv + v_at, s->seq, step, dim);
    memset(dk, 0, (size_t)all * sizeof *dk);
    memset(dv, 0, (size_t)all * sizeof *dv);
    for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
        for (int64_t t = 0; t < s->seq; t += TILE) {
            int64_t n = tile_at(s->seq, t), seen = t + n, q_at = first + t * step + h * dim;
            int64_t o_at = (b * s->seq + t) * wide + h * dim;

            FN(pack)(q, qkv + q_at, n, step, dim);
            FN(pack)(o, out + o_at, n, wide, dim);
            FN(pack)(d, dout + o_at, n, wide, dim);
            FN(attention_gemm)(false, true, n, seen, dim, scale, q, k, 0, p);
            FN(attention_gemm)(false, true, n, seen, dim, 1, d, v, 0, ds);
            for (int64_t r = 0; r < n; r++) {
                FN(slope)
                (p + r * seen, ds + r * seen, d + r * dim, o + r * dim,
                 lse[(b * s->heads + h) * s->seq + t + r], t + r + 1, seen, dim);
            }
            FN(attention_gemm)(true, false, seen, dim, n, 1, p, d, 1, dv);
            FN(attention_gemm)(true, false, seen, dim, n, 1, ds, q, 1, dk);
            FN(attention_gemm)(false, false, n, dim, seen, 1, ds, k, 0, dq);
            FN(unpack_rows)(dqkv + q_at, dq, n, step, dim);
        }
    }
    FN(unpack_rows)(dqkv + k_at, dk, s->seq, step, dim);
    FN(unpack_rows)(dqkv + v_at, dv, s->seq, step, dim);
}

static void FN(attention_backward)(elem *dqkv, const elem *dout, const elem *qkv, const elem *out,
                                   const real *lse, const struct attention_shape *s)
{
    size_t size = (size_t)(4 * (s->seq + TILE) * s->head_dim + 2 * TILE * s->seq) * sizeof(real);

#    pragma omp parallel if (attention_work(s) > PARALLEL_FROM)
    {
        void *room;

        CHECK(mem_alloc_cpu(&room, size) == 0);
#    pragma omp for collapse(2) schedule(dynamic)
        for (int64_t b = 0; b < s->batch; b++) {
            for (int64_t kv = 0; kv < s->kv_heads; kv++) {
                FN(backward_group)(dqkv, dout, qkv, out, lse, s, b, kv, room);
            }
        }
        mem_free_cpu(room);
    }
}

#endif
