#include "kernels/cuda/vector.cuh"

/* A block a row, in one launch: a running maximum and sum while the row is read, then the gradient.
 * Meanwhile the row waits where there is room: a thread's first AT_HAND vectors in its registers,
 * the others in shared memory (all of 50,304 16-bit logits, two rows a multiprocessor; all of
 * 128,256, one); a rest is read again, from the L2 cache that it has just passed. So memory sees
 * one read and one write of the logits.
 *
 * Logits are multiplied by log2(e) on their way into 2^x: together with the subtraction that is one
 * instruction. */
enum { AHEAD = 4, AT_HAND = 2, WARPS_MAX = 32 };

/* sum of 2^(x - top) over some x, top their maximum; x in units of log2. */
template <typename R> struct tally {
    R top, sum;
};

/* Commutes to the bit: all lanes of a warp agree. */
template <typename R> static __device__ tally<R> both(tally<R> a, tally<R> b)
{
    R top = max(a.top, b.top);

    /* Both may be -inf: nothing seen yet. */
    R left = a.top == top ? a.sum : a.sum * fast_exp2(a.top - top);
    R right = b.top == top ? b.sum : b.sum * fast_exp2(b.top - top);
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
static __device__ __forceinline__ vec<T, N> take(const T *x, int i, int vocab)
{
    vec<T, N> v = load<N>(x + static_cast<int64_t>(i) * N);

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
    R top = get(x.v[0]), sum = 0;

    for (int j = 1; j < N; j++) {
        top = max(top, get(x.v[j]));
    }
    top *= LOG2_OF_E<R>;
    if (top > t.top) {
        t.sum *= fast_exp2(t.top - top);
        t.top = top;
    }
    top = t.top == -INFINITY ? R(0) : t.top; /* -inf less -inf is no 0 */
    for (int j = 0; j < N; j++) {
        sum += fast_exp2(get(x.v[j]) * LOG2_OF_E<R> - top);
    }
    t.sum += sum;
}

/* A row's gradient: share * 2^(x - top), less `scale` at the wanted column. */
template <typename T> struct slope {
    T *to;
    int wanted; /* negative: none */
    real<T> top, share, at_wanted;
};

template <int N, typename T>
static __device__ __forceinline__ void add_slope_at(const slope<T> &s, vec<T, N> x, int i)
{
    using R = real<T>;

    for (int j = 0; j < N; j++) {
        put(x.v[j], s.share * fast_exp2(get(x.v[j]) * LOG2_OF_E<R> - s.top));
    }
    if (s.wanted >= i * N && s.wanted < (i + 1) * N) {
        for (int j = 0; j < N; j++) {
            if (i * N + j == s.wanted) {
                put(x.v[j], s.at_wanted);
            }
        }
    }
    store<N>(s.to + static_cast<int64_t>(i) * N, x);
}

template <int N, typename T>
static __global__ void __launch_bounds__(WARPS_MAX *WARP)
    row_kernel(real<T> *loss, T *dlogits, const T *logits, const int32_t *target, int vocab,
               int stride, real<T> scale, int kept)
{
    using R = real<T>;
    extern __shared__ __align__(16) char room[];
    auto *row_kept = reinterpret_cast<vec<T, N> *>(room);
    const int64_t row = blockIdx.x;
    const int vectors = (vocab + N - 1) / N, step = blockDim.x, mine = threadIdx.x;
    const int behind = AT_HAND * step; /* the first vector that no thread keeps in registers */
    const int stays = min(vectors, behind + kept);
    const T *x = logits + row * stride;
    const int wanted = target[row];
    const R at_target = wanted < 0 ? R(0) : get(x[wanted]);
    tally<R> t = {-INFINITY, 0};
    vec<T, N> first[AT_HAND];

    for (int a = 0; a < AT_HAND; a++) {
        if (mine + a * step < vectors) {
            first[a] = take<N>(x, mine + a * step, vocab);
        }
    }
    for (int a = 0; a < AT_HAND; a++) {
        if (mine + a * step < vectors) {
            count_in(t, first[a]);
        }
    }
    for (int i = mine + behind; i < vectors; i += AHEAD * step) {
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
            if (i + a * step < stays) {
                row_kept[i + a * step - behind] = v[a];
            }
        }
    }
    t = block_tally(t);
    if (mine == 0) {
        loss[row] = wanted < 0 ? R(0) : (log2(t.sum) + t.top) * LN_OF_2<R> - at_target;
    }
    if (dlogits == nullptr) {
        return;
    }
    const R s = wanted < 0 ? R(0) : scale, share = s / t.sum;
    const slope<T> to = {dlogits + row * stride, wanted, t.top, share,
                         share * fast_exp2(at_target * LOG2_OF_E<R> - t.top) - s};
    for (int a = 0; a < AT_HAND; a++) {
        if (mine + a * step < vectors) {
            add_slope_at(to, first[a], mine + a * step);
        }
    }
    for (int i = mine + behind; i < vectors; i += step) {
        add_slope_at(to, i < stays ? row_kept[i - behind] : take<N>(x, i, vocab), i);
    }
    for (int i = mine + vectors; i < stride / N; i += step) {
        store<N>(to.to + static_cast<int64_t>(i) * N, vec<T, N>{});
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

/* Threads for so many vectors, AHEAD of them each at least. */
static int64_t warps_for(int64_t vectors, int64_t most)
{
    return max(int64_t(1), min(most, vectors / (AHEAD * WARP)));
}

template <int N, typename T>
static void each_row(struct kstream *ks, real<T> *loss, T *dlogits, const T *logits,
                     const int32_t *target, int64_t rows, int64_t vocab, int64_t stride,
                     real<T> scale)
{
    const int64_t vectors = (vocab + N - 1) / N, one = sizeof(vec<T, N>), room = shared_room();
    int64_t warps = warps_for(vectors, WARPS_MAX / 2);
    int64_t left = vectors - AT_HAND * WARP * warps; /* what is not in registers */

    /* A row that leaves no room for a second one gets all the threads there are. */
    if (left * one > room / 2) {
        warps = warps_for(vectors, WARPS_MAX);
        left = vectors - AT_HAND * WARP * warps;
    }
    int64_t kept = dlogits == nullptr ? 0 : max(int64_t(0), min(left, room / one));

    const void *kernel = reinterpret_cast<const void *>(row_kernel<N, T>);

    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(room));
    /* Two rows need most of it; what streams by has no use for the cache. */
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                               cudaSharedmemCarveoutMaxShared);
    row_kernel<N><<<static_cast<unsigned>(rows), static_cast<unsigned>(warps * WARP),
                    static_cast<size_t>(kept * one), ks->stream>>>(
        loss, dlogits, logits, target, static_cast<int>(vocab), static_cast<int>(stride), scale,
        static_cast<int>(kept));
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

/* --- where the vocabulary is shared out
 * -------------------------------------------------------------------------------
 *
 * A rank's tally of a row: top and sum as above, and the wanted logit, 0 where it is another
 * rank's. */

template <int N, typename T>
static __global__ void tally_kernel(real<T> *tallies, const T *logits, const int32_t *target,
                                    int64_t before, int vocab, int64_t stride)
{
    using R = real<T>;
    const int64_t row = blockIdx.x, wanted = target[row] - before;
    const T *x = logits + row * stride;
    tally<R> t = {-INFINITY, 0};

    for (int i = threadIdx.x; i * N < vocab; i += blockDim.x) {
        count_in(t, take<N>(x, i, vocab));
    }
    t = block_tally(t);
    if (threadIdx.x == 0) {
        R *out = tallies + row * CROSSENTROPY_TALLY;

        out[0] = t.top;
        out[1] = t.sum;
        out[2] = wanted >= 0 && wanted < vocab ? get(x[wanted]) : R(0);
    }
}

template <int N, typename T>
static __global__ void join_kernel(real<T> *loss, T *dlogits, const T *logits,
                                   const real<T> *tallies, int ranks, const int32_t *target,
                                   int64_t before, int vocab, int64_t stride, real<T> scale)
{
    using R = real<T>;
    const int64_t row = blockIdx.x, step = static_cast<int64_t>(gridDim.x) * CROSSENTROPY_TALLY;
    const T *x = logits + row * stride;
    const R *t = tallies + row * CROSSENTROPY_TALLY;
    const int64_t mine = target[row] - before;
    const bool masked = target[row] < 0;
    R top = t[0], sum = 0, at_target = 0;

    for (int i = 1; i < ranks; i++) {
        top = max(top, t[i * step]);
    }
    for (int i = 0; i < ranks; i++) {
        sum += t[i * step + 1] * fast_exp2(t[i * step] - top);
        at_target += t[i * step + 2];
    }
    if (threadIdx.x == 0) {
        loss[row] = masked ? R(0) : (log2(sum) + top) * LN_OF_2<R> - at_target;
    }
    if (dlogits == nullptr) {
        return;
    }
    const R s = masked ? R(0) : scale, share = s / sum;
    const slope<T> to = {dlogits + row * stride,
                         masked || mine < 0 || mine >= vocab ? -1 : static_cast<int>(mine), top,
                         share, share * fast_exp2(at_target * LOG2_OF_E<R> - top) - s};

    for (int i = threadIdx.x; i < stride / N; i += blockDim.x) {
        if (i * N < vocab) {
            add_slope_at(to, take<N>(x, i, vocab), i);
        } else {
            store<N>(to.to + static_cast<int64_t>(i) * N, vec<T, N>{});
        }
    }
}

static unsigned threads_of_row(int64_t vectors)
{
    return static_cast<unsigned>(warps_for(vectors, WARPS_MAX / 2) * WARP);
}

extern "C" int crossentropy_tally_cuda(struct kstream *ks, enum dtype dt, void *tally,
                                       const void *logits, const int32_t *target, int64_t rows,
                                       int64_t first, int64_t vocab, int64_t stride)
{
    if (rows == 0) {
        return 0;
    }
    return each_vector(dt, in_vectors(dt, stride, logits), [&](auto t, auto w) {
        using T = decltype(t);
        constexpr int N = w.value;
        tally_kernel<N>
            <<<static_cast<unsigned>(rows), threads_of_row((vocab + N - 1) / N), 0, ks->stream>>>(
                static_cast<real<T> *>(tally), static_cast<const T *>(logits), target, first,
                static_cast<int>(vocab), stride);
    });
}

extern "C" int crossentropy_join_cuda(struct kstream *ks, enum dtype dt, void *loss, void *dlogits,
                                      const void *logits, const void *tallies, int ranks,
                                      const int32_t *target, int64_t rows, int64_t first,
                                      int64_t vocab, int64_t stride, double scale)
{
    if (rows == 0) {
        return 0;
    }
    return each_vector(dt, in_vectors(dt, stride, dlogits, logits), [&](auto t, auto w) {
        using T = decltype(t);
        using R = real<T>;
        constexpr int N = w.value;
        join_kernel<N><<<static_cast<unsigned>(rows), threads_of_row(stride / N), 0, ks->stream>>>(
            static_cast<R *>(loss), static_cast<T *>(dlogits), static_cast<const T *>(logits),
            static_cast<const R *>(tallies), ranks, target, first, static_cast<int>(vocab), stride,
            static_cast<R>(scale));
    });
}
