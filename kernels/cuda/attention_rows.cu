#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/launch.cuh"

/* Plain rather than fast: a warp owns one row of the result, its lanes share out 32 keys (or
 * queries) at a time and then the row's dimensions. Every sum has one owner, so the bits are the
 * same in every run. */
enum { WARPS = 4, DIMS = ATTENTION_MAX_HEAD_DIM / WARP };

template <typename T> static __device__ T dot(const T *a, const T *b, int64_t n)
{
    T sum = 0;

    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* Where a warp's row lies: batch, head and position. */
struct place {
    int64_t b, h, t;
    int64_t step; /* from one token's qkv to the next one's */
    __device__ place(int64_t row, int64_t heads, const attention_shape &s)
        : b(row / s.seq / heads), h(row / s.seq % heads), t(row % s.seq),
          step((s.heads + 2 * s.kv_heads) * s.head_dim)
    {
    }
};

static __device__ int64_t output_at(const attention_shape &s, int64_t b, int64_t t, int64_t h)
{
    return ((b * s.seq + t) * s.heads + h) * s.head_dim;
}

template <typename T> static __device__ void load(T *to, const T *from, int64_t n)
{
    for (int64_t i = threadIdx.x % WARP; i < n; i += WARP) {
        to[i] = from[i];
    }
    __syncwarp();
}

template <typename T>
static __global__ void rows_forward_kernel(T *out, T *lse, const T *qkv, attention_shape s)
{
    __shared__ T query[WARPS][ATTENTION_MAX_HEAD_DIM];
    int64_t row = global_thread() / WARP, lane = threadIdx.x % WARP, dim = s.head_dim;
    T *q = query[threadIdx.x / WARP], acc[DIMS] = {}, top = -INFINITY, sum = 0;
    T scale = 1 / sqrt(static_cast<T>(dim));

    if (row >= s.batch * s.heads * s.seq) {
        return;
    }
    place at(row, s.heads, s);
    const T *token = qkv + at.b * s.seq * at.step;
    const T *k = token + (s.heads + at.h * s.kv_heads / s.heads) * dim, *v = k + s.kv_heads * dim;

    load(q, token + at.t * at.step + at.h * dim, dim);
    for (int64_t base = 0; base <= at.t; base += WARP) {
        int64_t j = base + lane;
        T score = j <= at.t ? scale * dot(q, k + j * at.step, dim) : -INFINITY;
        T higher = max(top, warp_max(score)), shrink = exp(top - higher);
        T p = j <= at.t ? exp(score - higher) : T(0);

        top = higher;
        sum = sum * shrink + warp_sum(p);
        for (int i = 0; i < DIMS; i++) {
            acc[i] *= shrink;
        }
        for (int64_t l = 0; l < WARP && base + l <= at.t; l++) {
            T pl = __shfl_sync(0xffffffffu, p, static_cast<int>(l));
            for (int i = 0; i < DIMS; i++) {
                if (lane + i * WARP < dim) {
                    acc[i] += pl * v[(base + l) * at.step + lane + i * WARP];
                }
            }
        }
    }
    for (int i = 0; i < DIMS; i++) {
        if (lane + i * WARP < dim) {
            out[output_at(s, at.b, at.t, at.h) + lane + i * WARP] = acc[i] / sum;
        }
    }
    if (lane == 0) {
        lse[row] = top + log(sum);
    }
}

/* rowsum(dO * O), one a query. */
template <typename T>
static __global__ void delta_kernel(T *delta, const T *dout, const T *out, attention_shape s)
{
    int64_t row = global_thread() / WARP, lane = threadIdx.x % WARP;
    T sum = 0;

    if (row >= s.batch * s.heads * s.seq) {
        return;
    }
    place at(row, s.heads, s);
    int64_t o = output_at(s, at.b, at.t, at.h);
    for (int64_t i = lane; i < s.head_dim; i += WARP) {
        sum += dout[o + i] * out[o + i];
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        delta[row] = sum;
    }
}

template <typename T>
static __global__ void dq_kernel(T *dqkv, const T *dout, const T *qkv, const T *lse, const T *delta,
                                 attention_shape s)
{
    __shared__ T query[WARPS][ATTENTION_MAX_HEAD_DIM], dquery[WARPS][ATTENTION_MAX_HEAD_DIM];
    int64_t row = global_thread() / WARP, lane = threadIdx.x % WARP, dim = s.head_dim;
    T *q = query[threadIdx.x / WARP], *d = dquery[threadIdx.x / WARP], acc[DIMS] = {};
    T scale = 1 / sqrt(static_cast<T>(dim));

    if (row >= s.batch * s.heads * s.seq) {
        return;
    }
    place at(row, s.heads, s);
    int64_t token = at.b * s.seq * at.step;
    const T *k = qkv + token + (s.heads + at.h * s.kv_heads / s.heads) * dim;
    const T *v = k + s.kv_heads * dim;

    load(q, qkv + token + at.t * at.step + at.h * dim, dim);
    load(d, dout + output_at(s, at.b, at.t, at.h), dim);
    for (int64_t base = 0; base <= at.t; base += WARP) {
        int64_t j = base + lane;
        T ds = 0;

        if (j <= at.t) {
            T p = exp(scale * dot(q, k + j * at.step, dim) - lse[row]);
            ds = scale * p * (dot(d, v + j * at.step, dim) - delta[row]);
        }
        for (int64_t l = 0; l < WARP && base + l <= at.t; l++) {
            T dl = __shfl_sync(0xffffffffu, ds, static_cast<int>(l));
            for (int i = 0; i < DIMS; i++) {
                if (lane + i * WARP < dim) {
                    acc[i] += dl * k[(base + l) * at.step + lane + i * WARP];
                }
            }
        }
    }
    for (int i = 0; i < DIMS; i++) {
        if (lane + i * WARP < dim) {
            dqkv[token + at.t * at.step + at.h * dim + lane + i * WARP] = acc[i];
        }
    }
}

/* A warp a key: it meets all later queries of all heads that share it. */
template <typename T>
static __global__ void dkv_kernel(T *dqkv, const T *dout, const T *qkv, const T *lse,
                                  const T *delta, attention_shape s)
{
    __shared__ T key[WARPS][ATTENTION_MAX_HEAD_DIM], value[WARPS][ATTENTION_MAX_HEAD_DIM];
    int64_t row = global_thread() / WARP, lane = threadIdx.x % WARP, dim = s.head_dim;
    T *k = key[threadIdx.x / WARP], *v = value[threadIdx.x / WARP], dk[DIMS] = {}, dv[DIMS] = {};
    T scale = 1 / sqrt(static_cast<T>(dim));
    int64_t group = s.heads / s.kv_heads;

    if (row >= s.batch * s.kv_heads * s.seq) {
        return;
    }
    place at(row, s.kv_heads, s); /* h is a key head, t a key */
    int64_t token = at.b * s.seq * at.step;
    int64_t k_at = token + at.t * at.step + (s.heads + at.h) * dim, v_at = k_at + s.kv_heads * dim;

    load(k, qkv + k_at, dim);
    load(v, qkv + v_at, dim);
    for (int64_t h = at.h * group; h < (at.h + 1) * group; h++) {
        for (int64_t base = at.t; base < s.seq; base += WARP) {
            int64_t t = base + lane;
            T p = 0, ds = 0;

            if (t < s.seq) {
                int64_t stat = (at.b * s.heads + h) * s.seq + t;
                p = exp(scale * dot(qkv + token + t * at.step + h * dim, k, dim) - lse[stat]);
                ds = scale * p * (dot(dout + output_at(s, at.b, t, h), v, dim) - delta[stat]);
            }
            for (int64_t l = 0; l < WARP && base + l < s.seq; l++) {
                T pl = __shfl_sync(0xffffffffu, p, static_cast<int>(l));
                T dl = __shfl_sync(0xffffffffu, ds, static_cast<int>(l));
                const T *q = qkv + token + (base + l) * at.step + h * dim;
                const T *d = dout + output_at(s, at.b, base + l, h);

                for (int i = 0; i < DIMS; i++) {
                    if (lane + i * WARP < dim) {
                        dk[i] += dl * q[lane + i * WARP];
                        dv[i] += pl * d[lane + i * WARP];
                    }
                }
            }
        }
    }
    for (int i = 0; i < DIMS; i++) {
        if (lane + i * WARP < dim) {
            dqkv[k_at + lane + i * WARP] = dk[i];
            dqkv[v_at + lane + i * WARP] = dv[i];
        }
    }
}

extern "C" int attention_rows_forward(struct kstream *ks, enum dtype dt, void *out, void *lse,
                                      const void *qkv, const struct attention_shape *s)
{
    int64_t rows = s->batch * s->heads * s->seq;

    return each_real(dt, [&](auto t) {
        using T = decltype(t);
        rows_forward_kernel<T><<<blocks_for(rows, WARPS), WARPS * WARP, 0, ks->stream>>>(
            static_cast<T *>(out), static_cast<T *>(lse), static_cast<const T *>(qkv), *s);
    });
}

extern "C" int attention_rows_backward(struct kstream *ks, enum dtype dt, void *dqkv,
                                       const void *dout, const void *qkv, const void *out,
                                       const void *lse, const struct attention_shape *s,
                                       void *delta)
{
    int64_t rows = s->batch * s->heads * s->seq, keys = s->batch * s->kv_heads * s->seq;

    return each_real(dt, [&](auto t) {
        using T = decltype(t);
        const T *d = static_cast<const T *>(dout), *x = static_cast<const T *>(qkv);
        const T *l = static_cast<const T *>(lse);
        T *sums = static_cast<T *>(delta), *dx = static_cast<T *>(dqkv);

        delta_kernel<T><<<blocks_for(rows, WARPS), WARPS * WARP, 0, ks->stream>>>(
            sums, d, static_cast<const T *>(out), *s);
        dq_kernel<T>
            <<<blocks_for(rows, WARPS), WARPS * WARP, 0, ks->stream>>>(dx, d, x, l, sums, *s);
        dkv_kernel<T>
            <<<blocks_for(keys, WARPS), WARPS * WARP, 0, ks->stream>>>(dx, d, x, l, sums, *s);
    });
}
