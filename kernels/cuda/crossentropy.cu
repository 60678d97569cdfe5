#include "kernels/cuda/launch.cuh"

/* Over a block, in a fixed order; every thread gets the result. */
template <typename T, typename F> static __device__ T block_reduce(T x, T *shared, F combine)
{
    int warp = threadIdx.x / WARP;

    for (int step = WARP / 2; step > 0; step /= 2) {
        x = combine(x, __shfl_xor_sync(0xffffffffu, x, step));
    }
    __syncthreads(); /* `shared` may still be read from the last time */
    if (threadIdx.x % WARP == 0) {
        shared[warp] = x;
    }
    __syncthreads();
    x = shared[0];
    for (int w = 1; w < THREADS / WARP; w++) {
        x = combine(x, shared[w]);
    }
    return x;
}

/* A block a row. */
template <typename T>
static __global__ void row_kernel(T *loss, T *dlogits, const T *logits, const int32_t *target,
                                  int64_t vocab, int64_t stride, T scale)
{
    __shared__ T shared[THREADS / WARP];
    int64_t row = blockIdx.x;
    const T *x = logits + row * stride;
    int32_t wanted = target[row];
    T top = x[0], sum = 0, at_target = wanted < 0 ? T(0) : x[wanted];

    for (int64_t v = threadIdx.x; v < vocab; v += THREADS) {
        top = max(top, x[v]);
    }
    top = block_reduce(top, shared, [](T a, T b) { return max(a, b); });
    for (int64_t v = threadIdx.x; v < vocab; v += THREADS) {
        sum += exp(x[v] - top);
    }
    /* Behind these barriers every thread has read x[wanted]: dlogits may be the logits. */
    sum = block_reduce(sum, shared, [](T a, T b) { return a + b; });
    if (threadIdx.x == 0) {
        loss[row] = wanted < 0 ? T(0) : log(sum) + top - at_target;
    }
    if (dlogits == nullptr) {
        return;
    }
    T *dx = dlogits + row * stride;
    T s = wanted < 0 ? T(0) : scale;
    for (int64_t v = threadIdx.x; v < stride; v += THREADS) {
        dx[v] = v < vocab ? s * (exp(x[v] - top) / sum - (v == wanted ? T(1) : T(0))) : T(0);
    }
}

extern "C" int crossentropy_cuda(struct kstream *ks, enum dtype dt, void *loss, void *dlogits,
                                 const void *logits, const int32_t *target, int64_t rows,
                                 int64_t vocab, int64_t stride, double scale)
{
    if (rows == 0) {
        return 0;
    }
    return each_real(dt, [&](auto t) {
        using T = decltype(t);
        row_kernel<T><<<static_cast<unsigned>(rows), THREADS, 0, ks->stream>>>(
            static_cast<T *>(loss), static_cast<T *>(dlogits), static_cast<const T *>(logits),
            target, vocab, stride, static_cast<T>(scale));
    });
}
