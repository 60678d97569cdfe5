#include "kernels/cuda/noise.cuh"

template <typename R> struct terms {
    R lr, beta1, beta2, rest1, rest2, correct1, correct2, eps, decay;
};

/* One pass: of each element the gradient is read, both moments and the weight are read and written,
 * and the working copy is written: 30 bytes with 16-bit parameters, 28 with f32. */
template <int N, typename T>
static __global__ void adamw_kernel(T *p, real<T> *master, real<T> *m, real<T> *v,
                                    const real<T> *grad, int64_t n, const double *scale,
                                    terms<real<T>> k, struct noise noise)
{
    using R = real<T>;
    int64_t i = global_thread() * N;

    if (i >= n || isnan(*scale)) {
        return;
    }
    vec<R, N> g = load<N>(grad + i), mi = load<N>(m + i), vi = load<N>(v + i), w;
    if (master != nullptr) {
        w = load<N>(master + i);
    } else {
        vec<T, N> old = load<N>(p + i);
        for (int j = 0; j < N; j++) {
            w.v[j] = get(old.v[j]);
        }
    }
    for (int j = 0; j < N; j++) {
        R x = static_cast<R>(*scale) * g.v[j];
        mi.v[j] = k.beta1 * mi.v[j] + k.rest1 * x;
        vi.v[j] = k.beta2 * vi.v[j] + k.rest2 * x * x;
        w.v[j] -=
            k.lr * (mi.v[j] / k.correct1 / (sqrt(vi.v[j] / k.correct2) + k.eps) + k.decay * w.v[j]);
    }
    store<N>(m + i, mi);
    store<N>(v + i, vi);
    if (master != nullptr) {
        store<N>(master + i, w);
    }
    store<N>(p + i, round_noisy<N, T>(w, noise, i));
}

extern "C" int adamw_cuda(struct kstream *ks, enum dtype dt, void *p, void *master, void *m,
                          void *v, const void *grad, int64_t n, const double *scale,
                          const struct adamw_step *how)
{
    bool vectors =
        in_vectors(dtype_accum(dt), n, p, master, m, v, grad) && noise_in_fours(&how->noise);

    if (n == 0) {
        return 0;
    }
    return each_vector(dt, vectors, [&](auto t, auto w) {
        using T = decltype(t);
        using R = real<T>;
        constexpr int N = w.value > 1 ? VECTOR_BYTES / sizeof(R) : 1;
        const terms<R> k = {static_cast<R>(how->lr),        static_cast<R>(how->beta1),
                            static_cast<R>(how->beta2),     1 - static_cast<R>(how->beta1),
                            1 - static_cast<R>(how->beta2), static_cast<R>(how->correct1),
                            static_cast<R>(how->correct2),  static_cast<R>(how->eps),
                            static_cast<R>(how->decay)};

        adamw_kernel<N><<<blocks_for(n, THREADS * N), THREADS, 0, ks->stream>>>(
            static_cast<T *>(p), static_cast<R *>(master), static_cast<R *>(m), static_cast<R *>(v),
            static_cast<const R *>(grad), n, scale, k, how->noise);
    });
}
