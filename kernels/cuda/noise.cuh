/* noise.cuh - rounding at random, as convert.h says: the CPU's bits. */
#pragma once

#include "kernels/cuda/vector.cuh"

static __device__ __forceinline__ void put_noisy(__nv_bfloat16 &e, float r, uint32_t noise)
{
    e = __ushort_as_bfloat16(bf16_stochastic(r, noise));
}

static __device__ __forceinline__ void put_noisy(__half &e, float r, uint32_t noise)
{
    e = __ushort_as_half(f16_stochastic(r, noise));
}

/* N reals as the elements from number n.first + i on. With N = 4 that number is a multiple of 4,
 * and one draw serves. */
template <int N, typename T>
static __device__ __forceinline__ vec<T, N> round_noisy(const vec<real<T>, N> &r,
                                                        const struct noise &n, int64_t i)
{
    vec<T, N> out;

    if constexpr (sizeof(T) > 2) {
        out = r;
    } else if constexpr (N == 4) {
        struct philox draw = noise_of_four(&n, noise_number(&n, i) / 4);

        for (int j = 0; j < N; j++) {
            put_noisy(out.v[j], r.v[j], draw.v[j]);
        }
    } else {
        static_assert(N == 1, "draws come in fours");
        put_noisy(out.v[0], r.v[0], noise_at(&n, i));
    }
    return out;
}
