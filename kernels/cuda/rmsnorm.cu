#include "kernels/cuda/columns.cuh"

/* A warp a row. */
template <typename T>
static __global__ void forward_kernel(T *y, T *rstd, const T *x, const T *g, int64_t rows,
                                      int64_t cols, T eps)
{
    int64_t r = global_thread() / WARP, lane = threadIdx.x % WARP;
    T sumsq = 0, s;

    if (r >= rows) {
        return;
    }
    x += r * cols;
    for (int64_t c = lane; c < cols; c += WARP) {
        sumsq += x[c] * x[c];
    }
    s = 1 / sqrt(warp_sum(sumsq) / static_cast<T>(cols) + eps);
    for (int64_t c = lane; c < cols; c += WARP) {
        y[r * cols + c] = g[c] * (x[c] * s);
    }
    if (lane == 0) {
        rstd[r] = s;
    }
}

template <typename T>
static __global__ void backward_kernel(T *dx, const T *dy, const T *x, const T *g, const T *rstd,
                                       int64_t rows, int64_t cols)
{
    int64_t r = global_thread() / WARP, lane = threadIdx.x % WARP;
    T avg_dn = 0, s;

    if (r >= rows) {
        return;
    }
    x += r * cols;
    dy += r * cols;
    s = rstd[r];
    for (int64_t c = lane; c < cols; c += WARP) {
        avg_dn += dy[c] * g[c] * (x[c] * s);
    }
    avg_dn = warp_sum(avg_dn) / static_cast<T>(cols);
    for (int64_t c = lane; c < cols; c += WARP) {
        dx[r * cols + c] += s * (dy[c] * g[c] - x[c] * s * avg_dn);
    }
}

template <typename T> struct gain_gradient {
    const T *dy, *x, *rstd;
    int64_t cols;
    __device__ T operator()(int64_t r, int64_t c) const
    {
        return dy[r * cols + c] * (x[r * cols + c] * rstd[r]);
    }
};

extern "C" int rmsnorm_forward_cuda(struct kstream *ks, enum dtype dt, void *y, void *rstd,
                                    const void *x, const void *g, int64_t rows, int64_t cols,
                                    double eps)
{
    if (rows == 0) {
        return 0;
    }
    return each_real(dt, [&](auto t) {
        using T = decltype(t);
        forward_kernel<T><<<blocks_for(rows * WARP, THREADS), THREADS, 0, ks->stream>>>(
            static_cast<T *>(y), static_cast<T *>(rstd), static_cast<const T *>(x),
            static_cast<const T *>(g), rows, cols, static_cast<T>(eps));
    });
}

extern "C" int rmsnorm_backward_cuda(struct kstream *ks, enum dtype dt, void *dx, void *dg,
                                     const void *dy, const void *x, const void *g, const void *rstd,
                                     int64_t rows, int64_t cols)
{
    int rc = 0;

    if (rows == 0) {
        return 0;
    }
    int launch = each_real(dt, [&](auto t) {
        using T = decltype(t);
        const T *in = static_cast<const T *>(x), *d = static_cast<const T *>(dy);
        const T *s = static_cast<const T *>(rstd);

        backward_kernel<T><<<blocks_for(rows * WARP, THREADS), THREADS, 0, ks->stream>>>(
            static_cast<T *>(dx), d, in, static_cast<const T *>(g), s, rows, cols);
        rc = columns_add(ks, static_cast<T *>(dg), rows, cols, gain_gradient<T>{d, in, s, cols});
    });
    return rc != 0 ? rc : launch;
}
