#include "kernels/cuda/columns.cuh"

/* A warp a row. */
template <typename T>
static __global__ void forward_kernel(T *y, T *mean, T *rstd, const T *x, const T *g, const T *b,
                                      int64_t rows, int64_t cols, T eps)
{
    int64_t r = global_thread() / WARP, lane = threadIdx.x % WARP;
    T sum = 0, sumsq = 0, m, s;

    if (r >= rows) {
        return;
    }
    x += r * cols;
    for (int64_t c = lane; c < cols; c += WARP) {
        sum += x[c];
    }
    m = warp_sum(sum) / static_cast<T>(cols);
    for (int64_t c = lane; c < cols; c += WARP) {
        sumsq += (x[c] - m) * (x[c] - m);
    }
    s = 1 / sqrt(warp_sum(sumsq) / static_cast<T>(cols) + eps);
    for (int64_t c = lane; c < cols; c += WARP) {
        y[r * cols + c] = g[c] * ((x[c] - m) * s) + b[c];
    }
    if (lane == 0) {
        mean[r] = m;
        rstd[r] = s;
    }
}

template <typename T>
static __global__ void backward_kernel(T *dx, const T *dy, const T *x, const T *g, const T *mean,
                                       const T *rstd, int64_t rows, int64_t cols)
{
    int64_t r = global_thread() / WARP, lane = threadIdx.x % WARP;
    T avg_d = 0, avg_dn = 0, m, s;

    if (r >= rows) {
        return;
    }
    x += r * cols;
    dy += r * cols;
    m = mean[r];
    s = rstd[r];
    for (int64_t c = lane; c < cols; c += WARP) {
        T d = dy[c] * g[c];
        avg_d += d;
        avg_dn += d * ((x[c] - m) * s);
    }
    avg_d = warp_sum(avg_d) / static_cast<T>(cols);
    avg_dn = warp_sum(avg_dn) / static_cast<T>(cols);
    for (int64_t c = lane; c < cols; c += WARP) {
        dx[r * cols + c] += s * (dy[c] * g[c] - avg_d - (x[c] - m) * s * avg_dn);
    }
}

/* What dg sums up; db's is dy alone. */
template <typename T> struct gain_gradient {
    const T *dy, *x, *mean, *rstd;
    int64_t cols;
    __device__ T operator()(int64_t r, int64_t c) const
    {
        return dy[r * cols + c] * ((x[r * cols + c] - mean[r]) * rstd[r]);
    }
};

template <typename T> struct shift_gradient {
    const T *dy;
    int64_t cols;
    __device__ T operator()(int64_t r, int64_t c) const
    {
        return dy[r * cols + c];
    }
};

extern "C" int layernorm_forward_cuda(struct kstream *ks, enum dtype dt, void *y, void *mean,
                                      void *rstd, const void *x, const void *g, const void *b,
                                      int64_t rows, int64_t cols, double eps)
{
    if (rows == 0) {
        return 0;
    }
    return each_real(dt, [&](auto t) {
        using T = decltype(t);
        forward_kernel<T><<<blocks_for(rows * WARP, THREADS), THREADS, 0, ks->stream>>>(
            static_cast<T *>(y), static_cast<T *>(mean), static_cast<T *>(rstd),
            static_cast<const T *>(x), static_cast<const T *>(g), static_cast<const T *>(b), rows,
            cols, static_cast<T>(eps));
    });
}

extern "C" int layernorm_backward_cuda(struct kstream *ks, enum dtype dt, void *dx, void *dg,
                                       void *db, const void *dy, const void *x, const void *g,
                                       const void *mean, const void *rstd, int64_t rows,
                                       int64_t cols)
{
    int rc = 0;

    if (rows == 0) {
        return 0;
    }
    int launch = each_real(dt, [&](auto t) {
        using T = decltype(t);
        const T *in = static_cast<const T *>(x), *d = static_cast<const T *>(dy);
        const T *m = static_cast<const T *>(mean), *s = static_cast<const T *>(rstd);

        backward_kernel<T><<<blocks_for(rows * WARP, THREADS), THREADS, 0, ks->stream>>>(
            static_cast<T *>(dx), d, in, static_cast<const T *>(g), m, s, rows, cols);
        rc = columns_add(ks, static_cast<T *>(dg), rows, cols, gain_gradient<T>{d, in, m, s, cols});
        if (rc == 0) {
            rc = columns_add(ks, static_cast<T *>(db), rows, cols, shift_gradient<T>{d, cols});
        }
    });
    return rc != 0 ? rc : launch;
}
