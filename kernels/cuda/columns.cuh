/* columns.cuh - sums over rows: out[c] += sum of x[r][c], in two stages and an order that the shape alone fixes.
 *
 * The first stage, whoever's kernel that is, leaves partial sums as a matrix in the stream's scratch: every block adds up
 * rows of its own. The second adds the partial sums. Blocks are so many that an H100's 132 multiprocessors are all busy,
 * on every chip: their number is part of the order.
 */
#pragma once

#include "kernels/cuda/vector.cuh"

enum { COLUMN_BLOCKS = 528, FINISH_ROWS = 32 };

/* A warp's lanes are columns, its rows partial sums; then one warp adds what the others have. */
template <typename R>
static __global__ void columns_finish_kernel(R *out, const R *part, int64_t parts, int64_t cols)
{
    __shared__ R sums[FINISH_ROWS][WARP];
    int64_t c = static_cast<int64_t>(blockIdx.x) * WARP + threadIdx.x;
    R sum = 0;

    for (int64_t p = threadIdx.y; c < cols && p < parts; p += FINISH_ROWS) {
        sum += part[p * cols + c];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && c < cols) {
        for (int y = 1; y < FINISH_ROWS; y++) {
            sum += sums[y][threadIdx.x];
        }
        out[c] += sum;
    }
}

/* out [cols] += the columns' sums of part [parts, cols]. */
template <typename R>
static int columns_finish(struct kstream *ks, R *out, const R *part, int64_t parts, int64_t cols)
{
    columns_finish_kernel<<<blocks_for(cols, WARP), dim3(WARP, FINISH_ROWS), 0, ks->stream>>>(
        out, part, parts, cols);
    return launched();
}
