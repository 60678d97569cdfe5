#include "kernels/cuda/launch.cuh"

template <typename T>
static __global__ void forward_kernel(T *y, const int32_t *token, const T *wte, const T *wpe,
                                      int64_t rows, int64_t seq, int64_t cols)
{
    int64_t i = global_thread(), r = i / cols, c = i % cols;

    if (i < rows * cols) {
        T v = wte[token[r] * cols + c];
        y[i] = wpe == nullptr ? v : v + wpe[r % seq * cols + c];
    }
}

/* A block owns one row of the table and adds up its tokens' gradients in the order of the tokens. */
template <typename T>
static __global__ void tokens_kernel(T *dwte, const T *dy, const int32_t *token, int64_t rows,
                                     int64_t cols)
{
    __shared__ unsigned hits[THREADS / WARP];
    int32_t mine = static_cast<int32_t>(blockIdx.x);

    for (int64_t base = 0; base < rows; base += THREADS) {
        int64_t r = base + threadIdx.x;
        int hit = r < rows && token[r] == mine;
        unsigned mask = __ballot_sync(0xffffffffu, hit);

        if (threadIdx.x % WARP == 0) {
            hits[threadIdx.x / WARP] = mask;
        }
        if (!__syncthreads_or(hit)) {
            continue;
        }
        for (int w = 0; w < THREADS / WARP; w++) {
            for (unsigned left = hits[w]; left != 0; left &= left - 1) {
                int64_t row = base + w * WARP + __ffs(static_cast<int>(left)) - 1;

                for (int64_t c = threadIdx.x; c < cols; c += THREADS) {
                    dwte[mine * cols + c] += dy[row * cols + c];
                }
            }
        }
        __syncthreads(); /* all have read `hits` */
    }
}

template <typename T>
static __global__ void positions_kernel(T *dwpe, const T *dy, int64_t rows, int64_t seq,
                                        int64_t cols)
{
    int64_t i = global_thread();
    T sum = 0;

    if (i < min(seq, rows) * cols) {
        for (int64_t r = i / cols; r < rows; r += seq) {
            sum += dy[r * cols + i % cols];
        }
        dwpe[i] += sum;
    }
}

extern "C" int embedding_forward_cuda(struct kstream *ks, enum dtype dt, void *y,
                                      const int32_t *token, const void *wte, const void *wpe,
                                      int64_t rows, int64_t seq, int64_t cols)
{
    if (rows * cols == 0) {
        return 0;
    }
    return each_real(dt, [&](auto t) {
        using T = decltype(t);
        forward_kernel<T><<<blocks_for(rows * cols, THREADS), THREADS, 0, ks->stream>>>(
            static_cast<T *>(y), token, static_cast<const T *>(wte), static_cast<const T *>(wpe),
            rows, seq, cols);
    });
}

extern "C" int embedding_backward_cuda(struct kstream *ks, enum dtype dt, void *dwte, void *dwpe,
                                       const void *dy, const int32_t *token, int64_t rows,
                                       int64_t seq, int64_t cols, int64_t vocab)
{
    if (rows * cols == 0) {
        return 0;
    }
    return each_real(dt, [&](auto t) {
        using T = decltype(t);
        tokens_kernel<T><<<static_cast<unsigned>(vocab), THREADS, 0, ks->stream>>>(
            static_cast<T *>(dwte), static_cast<const T *>(dy), token, rows, cols);
        if (dwpe != nullptr) {
            positions_kernel<T><<<blocks_for(seq * cols, THREADS), THREADS, 0, ks->stream>>>(
                static_cast<T *>(dwpe), static_cast<const T *>(dy), rows, seq, cols);
        }
    });
}
