#include "kernels/cuda/vector.cuh"

/* A block a row, in one launch: a running maximum and sum while the row is read, then the gradient. What of the row has
 * room in shared memory waits there (all of 50,304 16-bit logits, two rows a multiprocessor; most of 128,256); the rest is
 * read again, from the L2 cache that it has just passed. So memory sees one read and one write of the logits. */
enum { AHEAD = 4, WARPS_MAX = 32 };

/* sum of exp(x - top) over some x, top their maximum. */
template <typename R> struct tally {
    R top, sum;
};

/* Commutes to the bit: all lanes of a warp agree. */
template <typename R> static __device__ tally<R> both(tally<R> a, tally<R> b)
{
    R top = max(a.top, b.top);

    /* Both may be -inf: nothing seen yet. */
    R left = a.top == top ? a.sum : a.sum * fast_exp(a.top - top);
    R right = b.top == top ? b.sum : b.sum * fast_exp(b.top - top);
    return {top, left + right};
}

template <typename R> static __device__ tally<R> warp_tally(tally<R> mine)
{
    for (int step = WARP / 2; step > 0; step /= 2) {
        tally<R> other = {__shfl_xor_sync(0xffffffffu, mine.top, step),
                          __shfl_xor_sync(0xffffffffu, mine.sum, step)};
        mine = both(mine, other);
    }
    return mine;
}

/* Behind it all threads have read what they read before. */
template <typename R> static __device__ tally<R> block_tally(tally<R> mine)
{
    __shared__ tally<R> part[WARPS_MAX], whole;

    mine = warp_tally(mine);
    if (threadIdx.x % WARP == 0) {
        part[threadIdx.x / WARP] = mine;
    }
    __syncthreads();
    if (threadIdx.x < WARP) {
        mine = threadIdx.x < blockDim.x / WARP ? part[threadIdx.x] : tally<R>{-INFINITY, 0};
        mine = warp_tally(mine);
        if (threadIdx.x == 0) {
            whole = mine;
        }
    }
    __syncthreads();
    return whole;
}

/* Vector i of the row; columns from vocab on count as -inf. */
template <int N, typename T>
static __device__ __forceinline__ vec<T, N> take(const T *x, int64_t i, int64_t vocab)
{
    vec<T, N> v = load<N>(x + i * N);

    for (int j = 0; (i + 1) * N > vocab && j < N; j++) {
        if (i * N + j >= vocab) {
            put(v.v[j], -INFINITY);
        }
    }
    return v;
}

template <int N, typename T>
static __device__ __forceinline__ void count_in(tally<real<T>> &t, const vec<T, N> &x)
{
    using R = real<T>;
    R top = t.top;

    for (int j = 0; j < N; j++) {
        top = max(top, get(x.v[j]));
    }
    if (top > t.top) {
        t.sum *= fast_exp(t.top - top);
        t.top = top;
    }
    top = t.top == -INFINITY ? R(0) : t.top; /* -inf less -inf is no 0 */
    for (int j = 0; j < N; j++) {
        t.sum += fast_exp(get(x.v[j]) - top);
    }
}

template <int N, typename T>
static __global__ void __launch_bounds__(WARPS_MAX *WARP)
    row_kernel(real<T> *loss, T *dlogits, const T *logits, const int32_t *target, int64_t vocab,
               int64_t stride, real<T> scale, int64_t kept)
{
    using R = real<T>;
    extern __shared__ __align__(16) char room[];
    auto *row_kept = reinterpret_cast<vec<T, N> *>(room);
    const int64_t row = blockIdx.x, vectors = (vocab + N - 1) / N, step = blockDim.x;
    const T *x = logits + row * stride;
    const int32_t wanted = target[row];
    const R at_target = wanted < 0 ? R(0) : get(x[wanted]);
    tally<R> t = {-INFINITY, 0};

    for (int64_t i = threadIdx.x; i < vectors; i += AHEAD * step) {
        vec<T, N> v[AHEAD];

        for (int a = 0; a < AHEAD; a++) {
            if (i + a * step < vectors) {
                v[a] = take<N>(x, i + a * step, vocab);
            }
        }
        for (int a = 0; a < AHEAD; a++) {
            if (i + a * step < vectors) {
                count_in(t, v[a]);
            }
            if (i + a * step < min(vectors, kept)) {
                row_kept[i + a * step] = v[a];
            }
        }
    }
    t = block_tally(t);
    if (threadIdx.x == 0) {
        loss[row] = wanted < 0 ? R(0) : log(t.sum) + t.top - at_target;
    }
    if (dlogits == nullptr) {
        return;
    }
    const R s = wanted < 0 ? R(0) : scale, share = s / t.sum;
    for (int64_t i = threadIdx.x; i < stride / N; i += step) {
        vec<T, N> v = {};

        if (i < vectors) {
            v = i < kept ? row_kept[i] : take<N>(x, i, vocab);
        }
        for (int j = 0; j < N; j++) {
            R p = i < vectors ? share * fast_exp(get(v.v[j]) - t.top) : R(0);
            put(v.v[j], i * N + j == wanted ? p - s : p);
        }
        store<N>(dlogits + row * stride + i * N, v);
    }
}

/* Shared memory that a block may have; all but what block_tally() takes. */
static int64_t shared_room()
{
    int device = 0, bytes = 48 << 10;

    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) !=
            cudaSuccess) {
        (void)cudaGetLastError();
    }
    return bytes - 2048;
}

template <int N, typename T>
static void each_row(struct kstream *ks, real<T> *loss, T *dlogits, const T *logits,
                     const int32_t *target, int64_t rows, int64_t vocab, int64_t stride,
                     real<T> scale)
{
    int64_t vectors = (vocab + N - 1) / N, room = shared_room();
    int64_t kept = dlogits == nullptr ? 0 : min(vectors, room / (int64_t)sizeof(vec<T, N>));
    int64_t bytes = kept * static_cast<int64_t>(sizeof(vec<T, N>));
    /* A row that leaves no room for a second one gets all the threads there are. */
    int64_t most = bytes > room / 2 ? WARPS_MAX : WARPS_MAX / 2;
    int64_t warps = max(int64_t(1), min(most, vectors / (AHEAD * WARP)));

    (void)cudaFuncSetAttribute(reinterpret_cast<const void *>(row_kernel<N, T>),
                               cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(room));
    row_kernel<N><<<static_cast<unsigned>(rows), static_cast<unsigned>(warps * WARP),
                    static_cast<size_t>(bytes), ks->stream>>>(loss, dlogits, logits, target, vocab,
                                                              stride, scale, kept);
}

extern "C" int crossentropy_cuda(struct kstream *ks, enum dtype dt, void *loss, void *dlogits,
                                 const void *logits, const int32_t *target, int64_t rows,
                                 int64_t vocab, int64_t stride, double scale)
{
    if (rows == 0) {
        return 0;
    }
    return each_vector(dt, in_vectors(dt, stride, dlogits, logits), [&](auto t, auto w) {
        using T = decltype(t);
        using R = real<T>;
        each_row<w.value>(ks, static_cast<R *>(loss), static_cast<T *>(dlogits),
                          static_cast<const T *>(logits), target, rows, vocab, stride,
                          static_cast<R>(scale));
    });
}
