#include "kernels/cuda/launch.cuh"

/* The sum of a block's values, in all its threads; always in the same order. */
static __device__ double block_sum(double x)
{
    __shared__ double part[THREADS / WARP];

    x = warp_sum(x);
    if (threadIdx.x % WARP == 0) {
        part[threadIdx.x / WARP] = x;
    }
    __syncthreads();
    x = 0;
    for (int w = 0; w < THREADS / WARP; w++) {
        x += part[w];
    }
    __syncthreads(); /* part is free again */
    return x;
}

/* Of two columns, `cols` elements from row to row. */
template <typename R>
static __device__ double dot(const R *a, const R *b, int64_t rows, int64_t cols)
{
    double sum = 0;

#pragma unroll 4
    for (int64_t r = threadIdx.x; r < rows; r += THREADS) {
        sum += static_cast<double>(a[r * cols]) * static_cast<double>(b[r * cols]);
    }
    return block_sum(sum);
}

/* A thread reads and writes rows of its own alone, so that only sums need a barrier. */
template <typename R> static __device__ void project(R *x, int64_t rows, int64_t cols, int64_t j)
{
    for (int64_t i = 0; i < j; i++) {
        double common = dot(x + i, x + j, rows, cols);

        for (int64_t r = threadIdx.x; r < rows; r += THREADS) {
            R *at = x + r * cols;

            at[j] =
                static_cast<R>(static_cast<double>(at[j]) - common * static_cast<double>(at[i]));
        }
    }
}

template <typename R> static __device__ void scale(R *x, int64_t rows, int64_t cols)
{
    double length = sqrt(dot(x, x, rows, cols));

    for (int64_t r = threadIdx.x; length != 0 && r < rows; r += THREADS) {
        x[r * cols] = static_cast<R>(static_cast<double>(x[r * cols]) / length);
    }
}

/* One block: a column waits for the one before it. */
template <typename R>
static __global__ void orthonormalize_kernel(R *x, int64_t rows, int64_t cols, uint64_t seed,
                                             double least)
{
    for (int64_t j = 0; j < cols; j++) {
        R *column = x + j;
        double before = dot(column, column, rows, cols), left;

        project(x, rows, cols, j);
        project(x, rows, cols, j);
        left = dot(column, column, rows, cols);
        if (left <= before * least * least && isfinite(before)) {
            for (int64_t r = threadIdx.x; r < rows; r += THREADS) {
                column[r * cols] = static_cast<R>(orthonormal_noise(seed, r, j));
            }
            project(x, rows, cols, j);
            project(x, rows, cols, j);
        }
        scale(column, rows, cols);
        project(x, rows, cols, j);
        scale(column, rows, cols);
    }
}

extern "C" int orthonormalize_cuda(struct kstream *ks, enum dtype dt, void *x, int64_t rows,
                                   int64_t cols, uint64_t seed)
{
    return each_real(dt, [&](auto t) {
        using R = decltype(t);

        orthonormalize_kernel<<<1, THREADS, 0, ks->stream>>>(static_cast<R *>(x), rows, cols, seed,
                                                             dt == DT_F32 ? ORTHONORMAL_LEAST_F32
                                                                          : ORTHONORMAL_LEAST_F64);
    });
}
