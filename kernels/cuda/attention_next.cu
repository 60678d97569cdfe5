#include "kernels/cuda/vector.cuh"

/* A block owns a head of the result. Its warps take keys in turn, a warp's lanes the dimensions of
 * a key; each warp keeps a running maximum and sum, and they meet at the end, always in the same
 * order. */
enum { WARPS = THREADS / WARP, DIMS = ATTENTION_MAX_HEAD_DIM / WARP };

/* Of one key, for every lane. */
template <typename T>
static __device__ real<T> score_of(const real<T> (&query)[DIMS], const T *k, int dim)
{
    real<T> sum = 0;

    for (int i = 0; i < DIMS; i++) {
        int d = threadIdx.x % WARP + i * WARP;
        sum += d < dim ? query[i] * get(k[d]) : 0;
    }
    return warp_sum(sum);
}

template <typename T>
static __global__ void next_kernel(T *out, const T *qkv, const T *cache, attention_shape s,
                                   int64_t keys)
{
    using R = real<T>;
    __shared__ R tops[WARPS], sums[WARPS], parts[WARPS][ATTENTION_MAX_HEAD_DIM];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, dim = static_cast<int>(s.head_dim);
    int64_t b = blockIdx.x / s.heads, h = blockIdx.x % s.heads, step = 2 * s.kv_heads * dim;
    const T *q = qkv + (b * (s.heads + 2 * s.kv_heads) + h) * dim;
    const T *k = cache + b * s.seq * step + h * s.kv_heads / s.heads * dim;
    const T *v = k + s.kv_heads * dim;
    R query[DIMS], acc[DIMS] = {}, top = -INFINITY, sum = 0, scale = 1 / sqrt(static_cast<R>(dim));

    for (int i = 0; i < DIMS; i++) {
        query[i] = lane + i * WARP < dim ? scale * get(q[lane + i * WARP]) : 0;
    }
    for (int64_t t = warp; t < keys; t += WARPS) {
        R score = score_of(query, k + t * step, dim), higher = max(top, score);
        R shrink = exp(top - higher), p = exp(score - higher);

        top = higher;
        sum = sum * shrink + p;
        for (int i = 0; i < DIMS; i++) {
            int d = lane + i * WARP;
            acc[i] = acc[i] * shrink + (d < dim ? p * get(v[t * step + d]) : 0);
        }
    }
    if (lane == 0) {
        tops[warp] = top;
        sums[warp] = sum;
    }
    for (int i = 0; i < DIMS; i++) {
        parts[warp][lane + i * WARP] = acc[i];
    }
    __syncthreads();
    top = -INFINITY;
    for (int w = 0; w < WARPS; w++) {
        top = max(top, tops[w]);
    }
    for (int d = threadIdx.x; d < dim; d += THREADS) {
        R whole = 0, x = 0;

        for (int w = 0; w < WARPS; w++) { /* one without a key brings nothing: exp(-inf) is 0 */
            R share = exp(tops[w] - top);
            whole += share * sums[w];
            x += share * parts[w][d];
        }
        put(out[blockIdx.x * static_cast<int64_t>(dim) + d], x / whole);
    }
}

extern "C" int attention_next_cuda(struct kstream *ks, enum dtype dt, void *out, const void *qkv,
                                   const void *cache, const struct attention_shape *s, int64_t keys)
{
    int64_t blocks = s->batch * s->heads;

    if (s->head_dim > ATTENTION_MAX_HEAD_DIM) {
        return E_UNSUPPORTED;
    }
    if (blocks == 0) {
        return 0;
    }
    return each_vector(dt, false, [&](auto t, auto) {
        using T = decltype(t);
        next_kernel<T><<<static_cast<unsigned>(blocks), THREADS, 0, ks->stream>>>(
            static_cast<T *>(out), static_cast<const T *>(qkv), static_cast<const T *>(cache), *s,
            keys);
    });
}
