#include "kernels/cuda/columns.cuh"

enum { ROWS = THREADS / WARP };

/* A warp takes a vector of columns a lane and every ROWS-th row of its block's slice; dy is read
 * once. */
template <int N, typename T>
static __global__ void __launch_bounds__(THREADS, THREADS_AT_A_TIME / THREADS)
    partial_kernel(real<T> *part, const T *dy, int64_t rows, int64_t cols)
{
    using R = real<T>;
    __shared__ R sums[ROWS][WARP * N];
    int64_t c = (static_cast<int64_t>(blockIdx.x) * WARP + threadIdx.x) * N;
    int64_t end = rows * (blockIdx.y + 1) / gridDim.y;
    R sum[N] = {};

#pragma unroll 4
    for (int64_t r = rows * blockIdx.y / gridDim.y + threadIdx.y; c < cols && r < end; r += ROWS) {
        vec<T, N> d = load<N>(dy + r * cols + c);
        for (int j = 0; j < N; j++) {
            sum[j] += get(d.v[j]);
        }
    }
    for (int j = 0; j < N; j++) {
        sums[threadIdx.y][threadIdx.x * N + j] = sum[j];
    }
    __syncthreads();
    for (int i = threadIdx.y * WARP + threadIdx.x; i < WARP * N; i += THREADS) {
        int64_t at = static_cast<int64_t>(blockIdx.x) * WARP * N + i;
        R total = 0;

        for (int y = 0; y < ROWS; y++) {
            total += sums[y][i];
        }
        if (at < cols) {
            part[blockIdx.y * cols + at] = total;
        }
    }
}

extern "C" int bias_backward_cuda(struct kstream *ks, enum dtype dt, void *db, const void *dy,
                                  int64_t rows, int64_t cols)
{
    int rc = 0;

    if (rows * cols == 0) {
        return 0;
    }
    int launch = each_vector(dt, in_vectors(dt, cols, dy), [&](auto t, auto w) {
        using T = decltype(t);
        using R = real<T>;
        constexpr int N = w.value;
        unsigned wide = blocks_for(cols, WARP * N),
                 slices = max(1u, blocks_at_a_time(ks, THREADS) / wide);
        R *part = static_cast<R *>(ks->scratch);

        if (slices * cols * sizeof(R) > SCRATCH_BYTES) {
            rc = E_UNSUPPORTED;
            return;
        }
        partial_kernel<N><<<dim3(wide, slices), dim3(WARP, ROWS), 0, ks->stream>>>(
            part, static_cast<const T *>(dy), rows, cols);
        rc = columns_finish(ks, column_sums<R>{{static_cast<R *>(db)}, 1}, part, slices, cols);
    });
    return rc != 0 ? rc : launch;
}
