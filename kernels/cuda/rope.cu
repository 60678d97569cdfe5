#include "kernels/cuda/vector.cuh"

/* A thread turns N neighbouring pairs of one head, a block heads of one token: they share its
 * angles, which come from the cache after the first. */
template <int N, typename T>
static __global__ void turn_kernel(T *qkv, const real<T> *cosine, const real<T> *sine, int sign,
                                   attention_shape s)
{
    using R = real<T>;
    int64_t half = s.head_dim / 2, row = blockIdx.x;
    int64_t at = (static_cast<int64_t>(blockIdx.y) * THREADS + threadIdx.x) * N;
    int64_t head = at / half, i = at % half;

    if (head >= s.heads + s.kv_heads) {
        return;
    }
    T *x = qkv + (row * (s.heads + 2 * s.kv_heads) + head) * s.head_dim + i;
    vec<T, N> low = load<N>(x), high = load<N>(x + half);
    vec<R, N> c = load<N>(cosine + row % s.seq * half + i);
    vec<R, N> d = load<N>(sine + row % s.seq * half + i);
    for (int j = 0; j < N; j++) {
        R a = get(low.v[j]), b = get(high.v[j]), turned = sign * d.v[j];

        put(low.v[j], a * c.v[j] - b * turned);
        put(high.v[j], b * c.v[j] + a * turned);
    }
    store<N>(x, low);
    store<N>(x + half, high);
}

static int launch_rope(struct kstream *ks, enum dtype dt, void *qkv, const void *cosine,
                       const void *sine, int sign, const struct attention_shape *s)
{
    int64_t rows = s->batch * s->seq, half = s->head_dim / 2;
    int64_t pairs = (s->heads + s->kv_heads) * half;

    if (s->head_dim % 2 != 0) {
        return E_UNSUPPORTED;
    }
    if (rows * pairs == 0) {
        return 0;
    }
    bool vectors = in_vectors(dt, half, qkv) && in_vectors(dtype_accum(dt), half, cosine, sine);
    return each_vector(dt, vectors, [&](auto t, auto w) {
        using T = decltype(t);
        constexpr int N = w.value;
        dim3 grid(static_cast<unsigned>(rows), blocks_for(pairs, THREADS * N));
        turn_kernel<N><<<grid, THREADS, 0, ks->stream>>>(
            static_cast<T *>(qkv), static_cast<const real<T> *>(cosine),
            static_cast<const real<T> *>(sine), sign, *s);
    });
}

extern "C" int rope_forward_cuda(struct kstream *ks, enum dtype dt, void *qkv, const void *cos,
                                 const void *sin, const struct attention_shape *s)
{
    return launch_rope(ks, dt, qkv, cos, sin, 1, s);
}

extern "C" int rope_backward_cuda(struct kstream *ks, enum dtype dt, void *dqkv, const void *cos,
                                  const void *sin, const struct attention_shape *s)
{
    return launch_rope(ks, dt, dqkv, cos, sin, -1, s);
}
