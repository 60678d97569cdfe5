#include "kernels/cuda/launch.cuh"

template <typename To, typename From>
static __global__ void convert_kernel(To *y, const From *x, int64_t n)
{
    int64_t i = global_thread();

    if (i < n) {
        y[i] = static_cast<To>(x[i]);
    }
}

extern "C" int convert_cuda(struct kstream *ks, enum dtype to, void *y, enum dtype from,
                            const void *x, int64_t n)
{
    int rc = 0;

    if (n == 0) {
        return 0;
    }
    int outer = each_real(to, [&](auto a) {
        using To = decltype(a);
        rc = each_real(from, [&](auto b) {
            using From = decltype(b);
            convert_kernel<To, From><<<blocks_for(n, THREADS), THREADS, 0, ks->stream>>>(
                static_cast<To *>(y), static_cast<const From *>(x), n);
        });
    });
    return rc != 0 ? rc : outer;
}

extern "C" int convert_stochastic_cuda(struct kstream *ks, enum dtype dt, void *y, const void *x,
                                       int64_t n, const struct noise *noise)
{
    (void)noise;
    return convert_cuda(ks, dt, y, dtype_accum(dt), x, n);
}
