#include "kernels/cuda/launch.cuh"

template <typename T>
static __global__ void adamw_kernel(T *p, T *master, T *m, T *v, const T *grad, int64_t n,
                                    const double *scale, struct adamw_step how)
{
    const T b1 = static_cast<T>(how.beta1), b2 = static_cast<T>(how.beta2);
    int64_t i = global_thread();

    if (i >= n || isnan(*scale)) {
        return;
    }
    T g = static_cast<T>(*scale) * grad[i], w = master != nullptr ? master[i] : p[i];
    m[i] = b1 * m[i] + (1 - b1) * g;
    v[i] = b2 * v[i] + (1 - b2) * g * g;
    w -= static_cast<T>(how.lr) *
         (m[i] / static_cast<T>(how.correct1) /
              (sqrt(v[i] / static_cast<T>(how.correct2)) + static_cast<T>(how.eps)) +
          static_cast<T>(how.decay) * w);
    if (master != nullptr) {
        master[i] = w;
    }
    p[i] = w;
}

extern "C" int adamw_cuda(struct kstream *ks, enum dtype dt, void *p, void *master, void *m,
                          void *v, const void *grad, int64_t n, const double *scale,
                          const struct adamw_step *how)
{
    if (n == 0) {
        return 0;
    }
    return each_real(dt, [&](auto t) {
        using T = decltype(t);
        adamw_kernel<T><<<blocks_for(n, THREADS), THREADS, 0, ks->stream>>>(
            static_cast<T *>(p), static_cast<T *>(master), static_cast<T *>(m), static_cast<T *>(v),
            static_cast<const T *>(grad), n, scale, *how);
    });
}
