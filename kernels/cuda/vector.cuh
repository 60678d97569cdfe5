/* vector.cuh - the elements of memory: four types, up to 16 bytes at a time.
 *
 * real<T> is what is computed with; get() widens an element to it, put() rounds back to the nearest
 * even one. A vec<T, N> is N elements as they lie in memory, moved by one instruction:
 * each_vector() picks the N that make 16 bytes when the tensors allow it, and 1 for odd widths and
 * crooked addresses, where the same kernel is right and slower.
 */
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/launch.cuh"

enum { VECTOR_BYTES = 16 };

template <typename T> struct real_of {
    using type = T;
};
template <> struct real_of<__nv_bfloat16> {
    using type = float;
};
template <> struct real_of<__half> {
    using type = float;
};
template <typename T> using real = typename real_of<T>::type;

static __device__ __forceinline__ float get(float e)
{
    return e;
}

static __device__ __forceinline__ double get(double e)
{
    return e;
}

static __device__ __forceinline__ float get(__nv_bfloat16 e)
{
    return __bfloat162float(e);
}

static __device__ __forceinline__ float get(__half e)
{
    return __half2float(e);
}

static __device__ __forceinline__ void put(float &e, float r)
{
    e = r;
}

static __device__ __forceinline__ void put(double &e, double r)
{
    e = r;
}

static __device__ __forceinline__ void put(__nv_bfloat16 &e, float r)
{
    e = __float2bfloat16_rn(r);
}

static __device__ __forceinline__ void put(__half &e, float r)
{
    e = __float2half_rn(r);
}

/* --- vectors ---------------------------------------------------------------------------------- */

template <typename T, int N> struct alignas(sizeof(T) * N) vec {
    T v[N];
};

/* The words that one instruction moves. A store is said by its instruction: the compiler splits
 * some of them. */
template <int BYTES> struct words_of;
template <> struct words_of<2> {
    using type = unsigned short;
};
template <> struct words_of<4> {
    using type = unsigned;
};
template <> struct words_of<8> {
    using type = uint2;
};
template <> struct words_of<16> {
    using type = uint4;
};
template <typename V> using words = typename words_of<sizeof(V)>::type;

/* More than 16 bytes (reals beside 16-bit elements) come in pieces of that size. */
template <int N, typename T> static __device__ __forceinline__ vec<T, N> load(const T *p)
{
    constexpr int PIECE = sizeof(vec<T, N>) > VECTOR_BYTES ? VECTOR_BYTES / sizeof(T) : N;
    vec<T, N> x;

    for (int i = 0; i < N; i += PIECE) {
        auto w = *reinterpret_cast<const words<vec<T, PIECE>> *>(p + i);
        memcpy(x.v + i, &w, sizeof w);
    }
    return x;
}

template <int N, typename T> static __device__ __forceinline__ void store(T *p, const vec<T, N> &x)
{
    words<vec<T, N>> w;

    memcpy(&w, &x, sizeof w);
    __stwb(reinterpret_cast<words<vec<T, N>> *>(p), w);
}

template <int N> struct width {
    static constexpr int value = N;
};

/* Whether rows of n elements can be taken 16 bytes at a time: then all the tensors begin where such
 * pieces may. */
template <typename... P> static bool in_vectors(enum dtype dt, int64_t n, const P *...tensor)
{
    uintptr_t row = static_cast<uintptr_t>(n) * dtype_bytes(dt);

    return (row | ... | reinterpret_cast<uintptr_t>(tensor)) % VECTOR_BYTES == 0;
}

/* Calls f(T{}, width<N>{}). */
template <typename F>
static int each_vector(enum dtype dt, bool vectors, F f, const char *who = __builtin_FUNCTION(),
                       int line = __builtin_LINE())
{
    auto pick = [&](auto t) {
        if (vectors) {
            f(t, width<VECTOR_BYTES / sizeof(t)>{});
        } else {
            f(t, width<1>{});
        }
    };

    switch (dt) {
    case DT_F32:
        pick(float{});
        break;
    case DT_F64:
        pick(double{});
        break;
    case DT_BF16:
        pick(__nv_bfloat16{});
        break;
    case DT_F16:
        pick(__half{});
        break;
    }
    return launched(who, line);
}

/* --- a function of elements, one thread a vector ---------------------------------------------- */

/* y = f(in...), all read before y, which may be one of them, is written. */
template <int N, typename F, typename T, typename... In>
static __global__ void map_kernel(F f, T *y, int64_t n, const In *...in)
{
    int64_t i = global_thread() * N;

    if (i < n) {
        [&](const vec<In, N> &...x) {
            vec<T, N> out;

            for (int j = 0; j < N; j++) {
                put(out.v[j], f(get(x.v[j])...));
            }
            store<N>(y + i, out);
        }(load<N>(in + i)...);
    }
}

template <int N, typename F, typename T, typename... In>
static void map(struct kstream *ks, F f, T *y, int64_t n, const In *...in)
{
    map_kernel<N><<<blocks_for(n, THREADS * N), THREADS, 0, ks->stream>>>(f, y, n, in...);
}

/* --- functions with f32 forms that cost one instruction --------------------------------------- */

template <typename R> constexpr R LOG2_OF_E = R(1.4426950408889634074);
template <typename R> constexpr R LN_OF_2 = R(0.69314718055994530942);

/* 2^x off by 2 ulp, and 0 below 2^-126: what comes out subnormal would cost three instructions
 * more. */
static __device__ __forceinline__ float fast_exp2(float x)
{
#ifdef __CUDA_ARCH__
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

static __device__ __forceinline__ double fast_exp2(double x)
{
    return exp2(x);
}

/* Off by 2 + 1.2 |x| ulp: enough where x is a score less the highest one, and what is far below
 * that hardly counts. */
static __device__ __forceinline__ float fast_exp(float x)
{
    return fast_exp2(x * LOG2_OF_E<float>);
}

static __device__ __forceinline__ double fast_exp(double x)
{
    return exp(x);
}

/* Off by 2 ulp, and 0 below 2^-126. */
static __device__ __forceinline__ float fast_divide(float a, float b)
{
    return __fdividef(a, b);
}

static __device__ __forceinline__ double fast_divide(double a, double b)
{
    return a / b;
}
