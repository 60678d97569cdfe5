#include "kernels/cuda/vector.cuh"

template <typename R> static __device__ R sigmoid_2u(R x)
{
    R u = R(0.79788456080286535588) * (x + R(0.044715) * x * x * x);
    return fast_divide(R(1), 1 + fast_exp(-2 * u));
}

struct gelu_of {
    template <typename R> __device__ R operator()(R x) const
    {
        return x * sigmoid_2u(x);
    }
};

struct gelu_slope {
    template <typename R> __device__ R operator()(R dy, R x) const
    {
        R du = R(0.79788456080286535588) * (1 + 3 * R(0.044715) * x * x);
        R s = sigmoid_2u(x);
        return dy * (s + x * s * (1 - s) * 2 * du);
    }
};

extern "C" int gelu_forward_cuda(struct kstream *ks, enum dtype dt, void *y, const void *x,
                                 int64_t n)
{
    if (n == 0) {
        return 0;
    }
    return each_vector(dt, in_vectors(dt, n, y, x), [&](auto t, auto w) {
        using T = decltype(t);
        map<w.value>(ks, gelu_of{}, static_cast<T *>(y), n, static_cast<const T *>(x));
    });
}

extern "C" int gelu_backward_cuda(struct kstream *ks, enum dtype dt, void *dx, const void *dy,
                                  const void *x, int64_t n)
{
    if (n == 0) {
        return 0;
    }
    return each_vector(dt, in_vectors(dt, n, dx, dy, x), [&](auto t, auto w) {
        using T = decltype(t);
        map<w.value>(ks, gelu_slope{}, static_cast<T *>(dx), n, static_cast<const T *>(dy),
                     static_cast<const T *>(x));
    });
}
