#include "kernels/cuda/launch.cuh"

template <typename T>
static __global__ void forward_kernel(T *y, const T *x, int64_t rows, int64_t cols)
{
    int64_t i = global_thread();

    if (i < rows * cols) {
        const T *gate = x + i / cols * 2 * cols + i % cols;
        y[i] = gate[0] / (1 + exp(-gate[0])) * gate[cols];
    }
}

template <typename T>
static __global__ void backward_kernel(T *dx, const T *dy, const T *x, int64_t rows, int64_t cols)
{
    int64_t i = global_thread(), at = i / cols * 2 * cols + i % cols;

    if (i < rows * cols) {
        T g = x[at], u = x[at + cols], s = 1 / (1 + exp(-g));

        dx[at] = dy[i] * u * (s + g * s * (1 - s));
        dx[at + cols] = dy[i] * g * s;
    }
}

extern "C" int swiglu_forward_cuda(struct kstream *ks, enum dtype dt, void *y, const void *x,
                                   int64_t rows, int64_t cols)
{
    if (rows * cols == 0) {
        return 0;
    }
    return each_real(dt, [&](auto t) {
        using T = decltype(t);
        forward_kernel<T><<<blocks_for(rows * cols, THREADS), THREADS, 0, ks->stream>>>(
            static_cast<T *>(y), static_cast<const T *>(x), rows, cols);
    });
}

extern "C" int swiglu_backward_cuda(struct kstream *ks, enum dtype dt, void *dx, const void *dy,
                                    const void *x, int64_t rows, int64_t cols)
{
    if (rows * cols == 0) {
        return 0;
    }
    return each_real(dt, [&](auto t) {
        using T = decltype(t);
        backward_kernel<T><<<blocks_for(rows * cols, THREADS), THREADS, 0, ks->stream>>>(
            static_cast<T *>(dx), static_cast<const T *>(dy), static_cast<const T *>(x), rows,
            cols);
    });
}
