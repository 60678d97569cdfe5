#include "kernels/cuda/launch.cuh"

template <typename T> static __device__ T sigmoid_2u(T x)
{
    T u = T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);
    return 1 / (1 + exp(-2 * u));
}

template <typename T> static __global__ void forward_kernel(T *y, const T *x, int64_t n)
{
    int64_t i = global_thread();

    if (i < n) {
        y[i] = x[i] * sigmoid_2u(x[i]);
    }
}

template <typename T>
static __global__ void backward_kernel(T *dx, const T *dy, const T *x, int64_t n)
{
    int64_t i = global_thread();

    if (i < n) {
        T du = T(0.79788456080286535588) * (1 + 3 * T(0.044715) * x[i] * x[i]);
        T s = sigmoid_2u(x[i]);
        dx[i] = dy[i] * (s + x[i] * s * (1 - s) * 2 * du);
    }
}

extern "C" int gelu_forward_cuda(struct kstream *ks, enum dtype dt, void *y, const void *x,
                                 int64_t n)
{
    if (n == 0) {
        return 0;
    }
    return each_real(dt, [&](auto t) {
        using T = decltype(t);
        forward_kernel<T><<<blocks_for(n, THREADS), THREADS, 0, ks->stream>>>(
            static_cast<T *>(y), static_cast<const T *>(x), n);
    });
}

extern "C" int gelu_backward_cuda(struct kstream *ks, enum dtype dt, void *dx, const void *dy,
                                  const void *x, int64_t n)
{
    if (n == 0) {
        return 0;
    }
    return each_real(dt, [&](auto t) {
        using T = decltype(t);
        backward_kernel<T><<<blocks_for(n, THREADS), THREADS, 0, ks->stream>>>(
            static_cast<T *>(dx), static_cast<const T *>(dy), static_cast<const T *>(x), n);
    });
}
