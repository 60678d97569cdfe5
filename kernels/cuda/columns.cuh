/* columns.cuh - sums over rows: out[c] += sum of x[r][c], in two stages and an order that shape and
 * chip fix.
 *
 * The first stage, whoever's kernel that is, leaves partial sums as a matrix in the stream's
 * scratch: every block adds up rows of its own. The second adds the partial sums, of several such
 * matrices in one launch. Blocks are so many that all multiprocessors are busy and hold all of them
 * at a time (1024 threads each, of 64 registers): a block that begins when the others end takes as
 * long as they did. Their number is part of the order.
 */
#pragma once

#include "kernels/cuda/vector.cuh"

enum {
    THREADS_AT_A_TIME = 1024,
    MULTIPROCESSORS_MAX = 256, /* partial sums of more would want more scratch */
    FINISH_ROWS = 32,
    COLUMN_SUMS = 3
};

/* Blocks of so many threads that run at a time. */
static inline unsigned blocks_at_a_time(const struct kstream *ks, unsigned threads)
{
    return min(ks->multiprocessors, static_cast<unsigned>(MULTIPROCESSORS_MAX)) *
           max(1u, THREADS_AT_A_TIME / threads);
}

/* Where the sums go, one matrix of partial sums behind the other. */
template <typename R> struct column_sums {
    R *out[COLUMN_SUMS];
    unsigned n;
};

/* A warp's lanes are columns, its rows partial sums; then one warp adds what the others have. */
template <typename R>
static __global__ void columns_finish_kernel(column_sums<R> to, const R *part, int64_t parts,
                                             int64_t cols)
{
    __shared__ R sums[FINISH_ROWS][WARP];
    int64_t c = static_cast<int64_t>(blockIdx.x) * WARP + threadIdx.x;
    R sum = 0;

    part += blockIdx.y * parts * cols;
#pragma unroll 8
    for (int64_t p = threadIdx.y; c < cols && p < parts; p += FINISH_ROWS) {
        sum += part[p * cols + c];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && c < cols) {
        for (int y = 1; y < FINISH_ROWS; y++) {
            sum += sums[y][threadIdx.x];
        }
        to.out[blockIdx.y][c] += sum;
    }
}

/* Each out [cols] += the columns' sums of its part [parts, cols]. */
template <typename R>
static int columns_finish(struct kstream *ks, const column_sums<R> &to, const R *part,
                          int64_t parts, int64_t cols)
{
    dim3 grid(blocks_for(cols, WARP), to.n);

    columns_finish_kernel<<<grid, dim3(WARP, FINISH_ROWS), 0, ks->stream>>>(to, part, parts, cols);
    return launched();
}
