#include "kernels/cuda/vector.cuh"

/* A block a row: its token is read once. */
template <int N, typename T>
static __global__ void embedding_forward_kernel(T *y, const int32_t *token, const T *wte,
                                                const T *wpe, int64_t seq, int64_t cols)
{
    int64_t row = blockIdx.x, c = (static_cast<int64_t>(blockIdx.y) * THREADS + threadIdx.x) * N;

    if (c >= cols) {
        return;
    }
    vec<T, N> v = {};
    if (token[row] >= 0) {
        v = load<N>(wte + token[row] * cols + c);
    }
    if (wpe != nullptr) {
        vec<T, N> p = load<N>(wpe + row % seq * cols + c);
        for (int j = 0; j < N; j++) {
            put(v.v[j], get(v.v[j]) + get(p.v[j]));
        }
    }
    store<N>(y + row * cols + c, v);
}

/* --- backward: no atomics on numbers, and no sort
 * ---------------------------------------------------------------------
 *
 * The vocabulary is dealt out to BUCKETS blocks (token modulo BUCKETS: frequent tokens are
 * neighbours). A block reads all tokens and lists the rows of its own, in order; when the list is
 * full or the tokens are, it orders the list by token (thread t picks out token t's rows, which
 * stay in order), and for each token adds up the rows' gradients: a thread keeps its columns' sums
 * in registers, DEPTH rows are on their way at a time, and the table is read and written once. So
 * every element is added to by one thread, in the order of the rows. */
enum {
    BUCKETS = 512,
    LIST = 4096,
    SPAN = 8,
    WINDOW = THREADS * SPAN,
    DEPTH = 16,
    WARPS = THREADS / WARP
};

struct bucket {
    int32_t row[LIST];          /* as found */
    uint16_t id[LIST];          /* which of the bucket's tokens */
    uint16_t ordered[LIST];     /* places in `row`, by token */
    int32_t start[THREADS + 1]; /* where a token's places begin */
    int32_t warp[WARPS];
    int count;
};

/* What the threads before this one brought; *all: the whole block. There is a barrier inside;
 * whoever calls has another one before the next call. */
static __device__ int sum_before(int mine, int32_t *warp, int *all)
{
    int lane = threadIdx.x % WARP, sum = mine;

    for (int step = 1; step < WARP; step *= 2) {
        int other = __shfl_up_sync(0xffffffffu, sum, step);
        sum += lane >= step ? other : 0;
    }
    if (lane == WARP - 1) {
        warp[threadIdx.x / WARP] = sum;
    }
    __syncthreads();
    *all = 0;
    for (int w = 0; w < WARPS; w++) {
        sum += w < static_cast<int>(threadIdx.x / WARP) ? warp[w] : 0;
        *all += warp[w];
    }
    return sum - mine;
}

/* Appends the rows from `base` on, WINDOW at most, whose tokens are the bucket's. */
static __device__ void collect_bucket_rows(bucket &b, const int32_t *token, int64_t base,
                                           int64_t rows)
{
    int64_t first = base + threadIdx.x * SPAN;
    int32_t mine[SPAN];
    int hits = 0, all, at;

    for (int i = 0; i < SPAN; i++) {
        mine[i] = first + i < rows ? token[first + i] : -1;
        hits += mine[i] >= 0 && mine[i] % BUCKETS == static_cast<int>(blockIdx.x);
    }
    at = sum_before(hits, b.warp, &all) + b.count;
    for (int i = 0; i < SPAN; i++) {
        if (mine[i] >= 0 && mine[i] % BUCKETS == static_cast<int>(blockIdx.x)) {
            b.row[at] = static_cast<int32_t>(first + i);
            b.id[at++] = static_cast<uint16_t>(mine[i] / BUCKETS);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        b.count += all;
    }
    __syncthreads();
}

/* The rows of the tokens from `id` on, THREADS at most, by token. */
static __device__ void order(bucket &b, int id)
{
    int mine = id + threadIdx.x, hits = 0, all, at;

    for (int i = 0; i < b.count; i++) {
        hits += b.id[i] == mine;
    }
    at = sum_before(hits, b.warp, &all);
    b.start[threadIdx.x] = at;
    if (threadIdx.x == 0) {
        b.start[THREADS] = all;
    }
    for (int i = 0; hits > 0 && i < b.count; i++) {
        if (b.id[i] == mine) {
            b.ordered[at++] = static_cast<uint16_t>(i);
        }
    }
    __syncthreads();
}

template <int N, typename T>
static __device__ void add_rows(real<T> *to, const T *dy, const bucket &b, int begin, int end,
                                int64_t cols)
{
    vec<real<T>, N> sum = load<N>(to);

    for (int i = begin; i < end; i += DEPTH) {
        vec<T, N> d[DEPTH];

        for (int k = 0; k < DEPTH; k++) {
            if (i + k < end) {
                d[k] = load<N>(dy + b.row[b.ordered[i + k]] * cols);
            }
        }
        for (int k = 0; k < DEPTH; k++) {
            for (int j = 0; i + k < end && j < N; j++) {
                sum.v[j] += get(d[k].v[j]);
            }
        }
    }
    store<N>(to, sum);
}

template <int N, typename T>
static __global__ void tokens_kernel(real<T> *dwte, const T *dy, const int32_t *token, int64_t rows,
                                     int64_t cols, int64_t vocab)
{
    __shared__ bucket b;
    int64_t c = (static_cast<int64_t>(blockIdx.y) * THREADS + threadIdx.x) * N;
    int ids = static_cast<int>((vocab - blockIdx.x + BUCKETS - 1) / BUCKETS);

    if (threadIdx.x == 0) {
        b.count = 0;
    }
    __syncthreads();
    for (int64_t base = 0; base < rows; base += WINDOW) {
        collect_bucket_rows(b, token, base, rows);
        if (base + WINDOW < rows && b.count <= LIST - WINDOW) {
            continue; /* there is room for another window */
        }
        for (int id = 0; id < ids; id += THREADS) {
            order(b, id);
            for (int t = 0; t < THREADS; t++) {
                int64_t mine = static_cast<int64_t>(id + t) * BUCKETS + blockIdx.x;

                if (b.start[t] < b.start[t + 1] && c < cols) {
                    add_rows<N>(dwte + mine * cols + c, dy + c, b, b.start[t], b.start[t + 1],
                                cols);
                }
            }
        }
        if (threadIdx.x == 0) {
            b.count = 0;
        }
        __syncthreads();
    }
}

/* Position t's gradient: of all batches, in order. */
template <int N, typename T>
static __global__ void positions_kernel(real<T> *dwpe, const T *dy, int64_t rows, int64_t seq,
                                        int64_t cols)
{
    int64_t t = blockIdx.x, c = (static_cast<int64_t>(blockIdx.y) * THREADS + threadIdx.x) * N;

    if (c >= cols) {
        return;
    }
    vec<real<T>, N> sum = {};
#pragma unroll 4
    for (int64_t r = t; r < rows; r += seq) {
        vec<T, N> d = load<N>(dy + r * cols + c);
        for (int j = 0; j < N; j++) {
            sum.v[j] += get(d.v[j]);
        }
    }
    for (int j = 0; j < N; j++) {
        dwpe[t * cols + c + j] += sum.v[j];
    }
}

template <int N> static dim3 grid_of(int64_t blocks, int64_t cols)
{
    return dim3(static_cast<unsigned>(blocks), blocks_for(cols, THREADS * N));
}

extern "C" int embedding_forward_cuda(struct kstream *ks, enum dtype dt, void *y,
                                      const int32_t *token, const void *wte, const void *wpe,
                                      int64_t rows, int64_t seq, int64_t cols)
{
    if (rows * cols == 0) {
        return 0;
    }
    return each_vector(dt, in_vectors(dt, cols, y, wte, wpe), [&](auto t, auto w) {
        using T = decltype(t);
        constexpr int N = w.value;
        embedding_forward_kernel<N><<<grid_of<N>(rows, cols), THREADS, 0, ks->stream>>>(
            static_cast<T *>(y), token, static_cast<const T *>(wte), static_cast<const T *>(wpe),
            seq, cols);
    });
}

extern "C" int embedding_backward_cuda(struct kstream *ks, enum dtype dt, void *dwte, void *dwpe,
                                       const void *dy, const int32_t *token, int64_t rows,
                                       int64_t seq, int64_t cols, int64_t vocab)
{
    if (rows * cols == 0) {
        return 0;
    }
    return each_vector(dt, in_vectors(dt, cols, dy, dwte, dwpe), [&](auto t, auto w) {
        using T = decltype(t);
        using R = real<T>;
        constexpr int N = w.value;
        /* Narrow accesses, so that more rows can be on their way: 4 bytes a lane are 128 a warp. */
        constexpr int PAIR = N > 1 && sizeof(T) == 2 ? 2 : 1;

        if (vocab > 0) {
            tokens_kernel<PAIR>
                <<<grid_of<PAIR>(min(vocab, int64_t(BUCKETS)), cols), THREADS, 0, ks->stream>>>(
                    static_cast<R *>(dwte), static_cast<const T *>(dy), token, rows, cols, vocab);
        }
        if (dwpe != nullptr) {
            positions_kernel<N><<<grid_of<N>(min(seq, rows), cols), THREADS, 0, ks->stream>>>(
                static_cast<R *>(dwpe), static_cast<const T *>(dy), rows, seq, cols);
        }
    });
}
