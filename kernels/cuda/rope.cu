#include "kernels/cuda/launch.cuh"

/* A thread a pair. */
template <typename T>
static __global__ void turn_kernel(T *qkv, const T *cosine, const T *sine, T sign,
                                   attention_shape s)
{
    int64_t half = s.head_dim / 2, turned = (s.heads + s.kv_heads) * half, n = global_thread();
    int64_t row = n / turned, head = n % turned / half, i = n % half;

    if (row >= s.batch * s.seq) {
        return;
    }
    T *x = qkv + (row * (s.heads + 2 * s.kv_heads) + head) * s.head_dim + i;
    T a = x[0], b = x[half];
    T c = cosine[row % s.seq * half + i], d = sign * sine[row % s.seq * half + i];

    x[0] = a * c - b * d;
    x[half] = b * c + a * d;
}

static int turn(struct kstream *ks, enum dtype dt, void *qkv, const void *cosine, const void *sine,
                int sign, const struct attention_shape *s)
{
    int64_t pairs = s->batch * s->seq * (s->heads + s->kv_heads) * (s->head_dim / 2);

    if (s->head_dim % 2 != 0) {
        return E_UNSUPPORTED;
    }
    if (pairs == 0) {
        return 0;
    }
    return each_real(dt, [&](auto t) {
        using T = decltype(t);
        turn_kernel<T><<<blocks_for(pairs, THREADS), THREADS, 0, ks->stream>>>(
            static_cast<T *>(qkv), static_cast<const T *>(cosine), static_cast<const T *>(sine),
            static_cast<T>(sign), *s);
    });
}

extern "C" int rope_forward_cuda(struct kstream *ks, enum dtype dt, void *qkv, const void *cos,
                                 const void *sin, const struct attention_shape *s)
{
    return turn(ks, dt, qkv, cos, sin, 1, s);
}

extern "C" int rope_backward_cuda(struct kstream *ks, enum dtype dt, void *dqkv, const void *cos,
                                  const void *sin, const struct attention_shape *s)
{
    return turn(ks, dt, dqkv, cos, sin, -1, s);
}
