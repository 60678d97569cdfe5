#ifndef REAL
#    include <string.h>

#    include "kernels/attention.h"

enum { RUN = 64 }; /* keys taken at a time */

#    define BODY "kernels/cpu/attention.c"
#    include "kernels/cpu/each_real.h"

int attention_prepare_cpu(struct kstream *ks, enum dtype dt, const struct attention_shape *s,
                          bool learn, struct attention_ready *out)
{
    (void)ks;
    (void)dt;
    (void)learn;
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
    return EACH_REAL(dt, forward, (out, lse, qkv, s));
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
    return EACH_REAL(dt, backward, (dqkv, dout, qkv, out, lse, s));
}

#else

static inline real FN(dot)(const real *a, const real *b, int64_t n)
{
    real sum = 0;
#    pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static inline void FN(axpy)(real *y, real a, const real *x, int64_t n)
{
#    pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] += a * x[i];
    }
}

/* One query, the keys in runs: a running maximum and sum; what was added up under a smaller maximum is scaled down when
 * it grows. */
WIDE static void FN(query)(real *out, real *lse, const real *q, const real *k, const real *v,
                           int64_t keys, int64_t step, int64_t dim)
{
    real scale = 1 / SQRT((real)dim), max = -INFINITY, sum = 0, p[RUN];

    memset(out, 0, (size_t)dim * sizeof *out);
    for (int64_t j = 0; j < keys; j += RUN) {
        int64_t n = keys - j < RUN ? keys - j : RUN;
        real top = max, shrink;

        for (int64_t i = 0; i < n; i++) {
            p[i] = scale * FN(dot)(q, k + (j + i) * step, dim);
            top = p[i] > top ? p[i] : top;
        }
        shrink = EXP(max - top);
        max = top;
        sum *= shrink;
        for (int64_t i = 0; i < dim; i++) {
            out[i] *= shrink;
        }
#    pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) {
            p[i] = EXP(p[i] - max);
            sum += p[i];
        }
        for (int64_t i = 0; i < n; i++) {
            FN(axpy)(out, p[i], v + (j + i) * step, dim);
        }
    }
    for (int64_t i = 0; i < dim; i++) {
        out[i] /= sum;
    }
    *lse = max + LOG(sum);
}

static void FN(forward)(real *out, real *lse, const real *qkv, const struct attention_shape *s)
{
    int64_t dim = s->head_dim, step = (s->heads + 2 * s->kv_heads) * dim;
    bool parallel = s->batch * s->heads * s->seq * s->seq > PARALLEL_FROM;

#    pragma omp parallel for collapse(2) schedule(dynamic) if (parallel)
    for (int64_t b = 0; b < s->batch; b++) {
        for (int64_t h = 0; h < s->heads; h++) {
            const real *q = qkv + b * s->seq * step + h * dim;
            const real *k = qkv + b * s->seq * step + (s->heads + h * s->kv_heads / s->heads) * dim;

            for (int64_t t = 0; t < s->seq; t++) {
                FN(query)
                (out + ((b * s->seq + t) * s->heads + h) * dim,
                 lse + (b * s->heads + h) * s->seq + t, q + t * step, k, k + s->kv_heads * dim,
                 t + 1, step, dim);
            }
        }
    }
}

/* With P = exp(score - lse): dV = P^T dO, dS = P * (dO V^T - rowsum(dO * O)), dQ = dS K / sqrt(d), dK = dS^T Q / sqrt(d). */
WIDE static void FN(backward_query)(real *dq, real *dk, real *dv, const real *dout, const real *q,
                                    const real *k, const real *v, const real *out, real lse,
                                    int64_t keys, int64_t step, int64_t dim)
{
    real scale = 1 / SQRT((real)dim), delta = FN(dot)(dout, out, dim), p[RUN];

    for (int64_t j = 0; j < keys; j += RUN) {
        int64_t n = keys - j < RUN ? keys - j : RUN;

        for (int64_t i = 0; i < n; i++) {
            p[i] = scale * FN(dot)(q, k + (j + i) * step, dim) - lse;
        }
#    pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            p[i] = EXP(p[i]);
        }
        for (int64_t i = 0; i < n; i++) {
            int64_t at = (j + i) * step;
            real ds = scale * p[i] * (FN(dot)(dout, v + at, dim) - delta);

            FN(axpy)(dv + at, p[i], dout, dim);
            FN(axpy)(dq, ds, k + at, dim);
            FN(axpy)(dk + at, ds, q, dim);
        }
    }
}

static void FN(backward)(real *dqkv, const real *dout, const real *qkv, const real *out,
                         const real *lse, const struct attention_shape *s)
{
    int64_t dim = s->head_dim, step = (s->heads + 2 * s->kv_heads) * dim;
    bool parallel = s->batch * s->heads * s->seq * s->seq > PARALLEL_FROM;
    int64_t group = s->heads / s->kv_heads;

    /* A key head belongs to one thread: all the query heads that add to its gradient run there, in order. */
#    pragma omp parallel for collapse(2) schedule(dynamic) if (parallel)
    for (int64_t b = 0; b < s->batch; b++) {
        for (int64_t kv = 0; kv < s->kv_heads; kv++) {
            int64_t base = b * s->seq * step, k = base + (s->heads + kv) * dim;
            int64_t v = k + s->kv_heads * dim;

            for (int64_t t = 0; t < s->seq; t++) {
                for (int64_t i = 0; i < dim; i++) {
                    dqkv[k + t * step + i] = dqkv[v + t * step + i] = 0;
                }
            }
            for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
                for (int64_t t = 0; t < s->seq; t++) {
                    int64_t q = base + t * step + h * dim;
                    int64_t o = ((b * s->seq + t) * s->heads + h) * dim;

                    for (int64_t i = 0; i < dim; i++) {
                        dqkv[q + i] = 0;
                    }
                    FN(backward_query)
                    (dqkv + q, dqkv + k, dqkv + v, dout + o, qkv + q, qkv + k, qkv + v, out + o,
                     lse[(b * s->heads + h) * s->seq + t], t + 1, step, dim);
                }
            }
        }
    }
}

#endif
