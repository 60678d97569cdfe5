#include "kernels/cuda/noise.cuh"

struct same {
    template <typename R> __device__ R operator()(R r) const
    {
        return r;
    }
};

/* A double meets 16 bits by way of an f32 that has not rounded yet. */
struct truncated {
    __device__ float operator()(double r) const
    {
        return float_odd(r);
    }
};

template <typename To, typename From>
using step = std::conditional_t<sizeof(To) == 2 && sizeof(From) == sizeof(double), truncated, same>;

extern "C" int convert_cuda(struct kstream *ks, enum dtype to, void *y, enum dtype from,
                            const void *x, int64_t n)
{
    enum dtype larger = dtype_bytes(to) > dtype_bytes(from) ? to : from;
    bool vectors = in_vectors(larger, n, y, x);

    if (n == 0) {
        return 0;
    }
    int launch = 0;
    int rc = each_vector(to, vectors, [&](auto t, auto wt) {
        launch = each_vector(from, vectors, [&](auto f, auto wf) {
            using To = decltype(t);
            using From = decltype(f);
            map<(wt.value < wf.value ? wt.value : wf.value)>(
                ks, step<To, From>{}, static_cast<To *>(y), n, static_cast<const From *>(x));
        });
    });
    return launch != 0 ? launch : rc;
}

template <int N, typename T>
static __global__ void stochastic_kernel(T *y, const real<T> *x, int64_t n, struct noise noise)
{
    int64_t i = global_thread() * N;

    if (i < n) {
        store<N>(y + i, round_noisy<N, T>(load<N>(x + i), noise, i));
    }
}

template <int N, typename T>
static void stochastic(struct kstream *ks, T *y, const void *x, int64_t n,
                       const struct noise *noise)
{
    stochastic_kernel<N><<<blocks_for(n, THREADS * N), THREADS, 0, ks->stream>>>(
        y, static_cast<const real<T> *>(x), n, *noise);
}

extern "C" int convert_stochastic_cuda(struct kstream *ks, enum dtype dt, void *y, const void *x,
                                       int64_t n, const struct noise *noise)
{
    bool fours = in_vectors(DT_F32, n, y, x) && noise_in_fours(noise);

    if (dtype_accum(dt) == dt) {
        return convert_cuda(ks, dt, y, dt, x, n);
    }
    if (n == 0) {
        return 0;
    }
    return each_vector(dt, fours, [&](auto t, auto w) {
        using T = decltype(t);
        stochastic<(w.value > 1 && sizeof(T) == 2 ? 4 : 1)>(ks, static_cast<T *>(y), x, n, noise);
    });
}
