/* columns.cuh - out[c] += sum over rows of value(r, c), in two stages and a fixed order. */
#pragma once

#include "kernels/cuda/launch.cuh"

enum { COLUMN_ROWS = 8, COLUMN_SLICES = 64 };

template <typename T, typename V>
static __global__ void columns_partial_kernel(T *part, int64_t rows, int64_t cols, V value)
{
    __shared__ T sum[COLUMN_ROWS][WARP];
    int64_t c = static_cast<int64_t>(blockIdx.x) * WARP + threadIdx.x;
    int64_t begin = rows * blockIdx.y / COLUMN_SLICES,
            end = rows * (blockIdx.y + 1) / COLUMN_SLICES;
    T mine = 0;

    for (int64_t r = begin + threadIdx.y; c < cols && r < end; r += COLUMN_ROWS) {
        mine += value(r, c);
    }
    sum[threadIdx.y][threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.y == 0 && c < cols) {
        for (int y = 1; y < COLUMN_ROWS; y++) {
            mine += sum[y][threadIdx.x];
        }
        part[blockIdx.y * cols + c] = mine;
    }
}

template <typename T>
static __global__ void columns_finish_kernel(T *out, const T *part, int64_t cols)
{
    int64_t c = global_thread();
    T sum = 0;

    if (c < cols) {
        for (int s = 0; s < COLUMN_SLICES; s++) {
            sum += part[s * cols + c];
        }
        out[c] += sum;
    }
}

template <typename T, typename V>
static int columns_add(struct kstream *ks, T *out, int64_t rows, int64_t cols, V value)
{
    T *part = static_cast<T *>(ks->scratch);

    if (cols * COLUMN_SLICES * sizeof(T) > SCRATCH_BYTES) {
        return E_UNSUPPORTED;
    }
    if (cols == 0) {
        return 0;
    }
    columns_partial_kernel<<<dim3(blocks_for(cols, WARP), COLUMN_SLICES), dim3(WARP, COLUMN_ROWS),
                             0, ks->stream>>>(part, rows, cols, value);
    columns_finish_kernel<<<blocks_for(cols, THREADS), THREADS, 0, ks->stream>>>(out, part, cols);
    return launched();
}
