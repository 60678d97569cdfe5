#include "kernels/cuda/vector.cuh"

/* A block takes up to THREADS vectors of one row; the rows are the grid's x, which has room for
 * them. */
template <int N> static dim3 row_grid(int64_t rows, int64_t cols)
{
    return dim3(static_cast<unsigned>(rows), blocks_for(cols, THREADS * N));
}

template <int N, typename T> static __global__ void forward_kernel(T *y, const T *x, int64_t cols)
{
    int64_t row = blockIdx.x, c = (static_cast<int64_t>(blockIdx.y) * THREADS + threadIdx.x) * N;

    if (c >= cols) {
        return;
    }
    vec<T, N> gate = load<N>(x + 2 * row * cols + c), up = load<N>(x + (2 * row + 1) * cols + c);
    for (int j = 0; j < N; j++) {
        real<T> g = get(gate.v[j]);
        put(gate.v[j], fast_divide(g, 1 + fast_exp(-g)) * get(up.v[j]));
    }
    store<N>(y + row * cols + c, gate);
}

/* dx may be x: a thread reads its elements before it writes them. */
template <int N, typename T>
static __global__ void backward_kernel(T *dx, const T *dy, const T *x, int64_t cols)
{
    int64_t row = blockIdx.x, c = (static_cast<int64_t>(blockIdx.y) * THREADS + threadIdx.x) * N;
    int64_t gate_at = 2 * row * cols + c, up_at = gate_at + cols;

    if (c >= cols) {
        return;
    }
    vec<T, N> gate = load<N>(x + gate_at), up = load<N>(x + up_at),
              d = load<N>(dy + row * cols + c);
    for (int j = 0; j < N; j++) {
        real<T> g = get(gate.v[j]), u = get(up.v[j]), e = get(d.v[j]);
        real<T> s = fast_divide(real<T>(1), 1 + fast_exp(-g));

        put(gate.v[j], e * u * (s + g * s * (1 - s)));
        put(up.v[j], e * g * s);
    }
    store<N>(dx + gate_at, gate);
    store<N>(dx + up_at, up);
}

extern "C" int swiglu_forward_cuda(struct kstream *ks, enum dtype dt, void *y, const void *x,
                                   int64_t rows, int64_t cols)
{
    if (rows * cols == 0) {
        return 0;
    }
    return each_vector(dt, in_vectors(dt, cols, y, x), [&](auto t, auto w) {
        using T = decltype(t);
        constexpr int N = w.value;
        forward_kernel<N><<<row_grid<N>(rows, cols), THREADS, 0, ks->stream>>>(
            static_cast<T *>(y), static_cast<const T *>(x), cols);
    });
}

extern "C" int swiglu_backward_cuda(struct kstream *ks, enum dtype dt, void *dx, const void *dy,
                                    const void *x, int64_t rows, int64_t cols)
{
    if (rows * cols == 0) {
        return 0;
    }
    return each_vector(dt, in_vectors(dt, cols, dx, dy, x), [&](auto t, auto w) {
        using T = decltype(t);
        constexpr int N = w.value;
        backward_kernel<N><<<row_grid<N>(rows, cols), THREADS, 0, ks->stream>>>(
            static_cast<T *>(dx), static_cast<const T *>(dy), static_cast<const T *>(x), cols);
    });
}
