#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"

/* Queries and keys come in tiles of rows in shared memory; a block owns one tile of results, each
 * of its warps 16 rows of it, and meets the tiles of the other side one after another. What a warp
 * computes stays in its registers: scores, then weights, which are already laid out as the left
 * operand of the next product.
 *
 * Two products make up everything, forward and backward:
 *     row_dots      acc[i][j] += sum over d of a[i][d] * b[j][d]    both tiles as they lie
 *     weigh_rows    acc[i][d] += sum over j of w[i][j] * b[j][d]    b read transposed
 */
enum { TILE = 64, TILE_WARPS = 4, TILE_THREADS = TILE_WARPS * WARP, WARP_ROWS = 16 };

static constexpr float LOG2_E = 1.44269504088896340736f, LN_2 = 0.69314718055994530942f;

/* --- tiles in shared memory ------------------------------------------------------------------- */

/* Where a value of a tile lies. Eight neighbours stay together (16 bytes); which eight of a row
 * come where depends on the row, so that eight rows' groups at one column fall on different
 * banks. */
template <int D> static __host__ __device__ inline int tile_at(int row, int col)
{
    return row * D + (((col / 8) ^ (row % 8)) * 8) + col % 8;
}

/* Rows 0.. of `from`, `step` values apart; zeros behind the last one and behind `dim`. A group of
 * copies. */
template <int D, int ROWS>
static __device__ void copy_tile(uint16_t *tile, const uint16_t *from, int64_t step, int64_t rows,
                                 int dim)
{
    for (int i = threadIdx.x; i < ROWS * D / 8; i += TILE_THREADS) {
        int row = i / (D / 8), col = i % (D / 8) * 8;
        bool valid = row < rows && col < dim;

        copy_16(tile + tile_at<D>(row, col), valid ? from + row * step + col : from, valid);
    }
}

/* One number a row, as it is; 0 behind the last. */
template <int ROWS> static __device__ void copy_numbers(float *to, const float *from, int64_t rows)
{
    for (int i = threadIdx.x; i < ROWS; i += TILE_THREADS) {
        to[i] = i < rows ? from[i] : 0.0f;
    }
}

/* --- the two products ------------------------------------------------------------------------- */

/* The warp's 16 rows of a from a_row on, against the first N rows of b. */
template <typename T, int D, int N>
static __device__ void row_dots(float (&acc)[N / 8][4], const uint16_t *a, int a_row,
                                const uint16_t *b)
{
    int lane = threadIdx.x % WARP, within = lane % 8, matrix = lane / 8;

    for (int i = 0; i < N / 8; i++) {
        for (int j = 0; j < 4; j++) {
            acc[i][j] = 0;
        }
    }
#pragma unroll
    for (int d = 0; d < D; d += 16) {
        uint32_t left[4];

        load_matrices(left, a + tile_at<D>(a_row + matrix % 2 * 8 + within, d + matrix / 2 * 8));
#pragma unroll
        for (int n = 0; n < N; n += 16) {
            uint32_t right[4];

            load_matrices(right, b + tile_at<D>(n + matrix / 2 * 8 + within, d + matrix % 2 * 8));
            mma(T{}, acc[n / 8], left, right[0], right[1]);
            mma(T{}, acc[n / 8 + 1], left, right[2], right[3]);
        }
    }
}

/* w[16][N] from registers, rounded to 16 bits, times the first N rows of b. */
template <typename T, int D, int N>
static __device__ void weigh_rows(float (&acc)[D / 8][4], const float (&w)[N / 8][4],
                                  const uint16_t *b)
{
    int lane = threadIdx.x % WARP, within = lane % 8, matrix = lane / 8;

#pragma unroll
    for (int n = 0; n < N; n += 16) {
        const float(&w0)[4] = w[n / 8], (&w1)[4] = w[n / 8 + 1];
        uint32_t left[4] = {pack(T{}, w0[0], w0[1]), pack(T{}, w0[2], w0[3]),
                            pack(T{}, w1[0], w1[1]), pack(T{}, w1[2], w1[3])};

#pragma unroll
        for (int d = 0; d < D; d += 16) {
            uint32_t right[4];

            load_matrices_transposed(
                right, b + tile_at<D>(n + matrix % 2 * 8 + within, d + matrix / 2 * 8));
            mma(T{}, acc[d / 8], left, right[0], right[1]);
            mma(T{}, acc[d / 8 + 1], left, right[2], right[3]);
        }
    }
}

/* Which row and column of the warp's 16 x N part acc[i][j] is. */
static __device__ inline int part_row(int j)
{
    return threadIdx.x % WARP / 4 + j / 2 * 8;
}

static __device__ inline int part_col(int i, int j)
{
    return i * 8 + threadIdx.x % 4 * 2 + j % 2;
}

/* A row's values lie with four lanes. */
static __device__ inline float row_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

static __device__ inline float row_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* The warp's 16 rows of a result; `factor` for each of the lane's two rows. */
template <typename T, int D>
static __device__ void store_rows(uint16_t *to, int64_t step, int64_t rows, int dim,
                                  const float (&acc)[D / 8][4], float factor0, float factor1)
{
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
        int col = part_col(i, 0);

        for (int half = 0; half < 2; half++) {
            int row = part_row(2 * half);
            float f = half == 0 ? factor0 : factor1;

            if (row < rows && col < dim) {
                *reinterpret_cast<uint32_t *>(to + row * step + col) =
                    pack(T{}, acc[i][2 * half] * f, acc[i][2 * half + 1] * f);
            }
        }
    }
}

/* --- where things lie ------------------------------------------------------------------------- */

struct layout {
    attention_shape s;
    int64_t step; /* from one token's qkv to the next one's */
    int dim;
    float scale;
    __host__ __device__ explicit layout(const attention_shape &shape)
        : s(shape), step((shape.heads + 2 * shape.kv_heads) * shape.head_dim),
          dim(static_cast<int>(shape.head_dim)),
          scale(1 / sqrtf(static_cast<float>(shape.head_dim)))
    {
    }
    __device__ int64_t query(int64_t b, int64_t t, int64_t h) const
    {
        return (b * s.seq + t) * step + h * dim;
    }
    __device__ int64_t key(int64_t b, int64_t t, int64_t kv) const
    {
        return query(b, t, s.heads + kv);
    }
    __device__ int64_t value(int64_t b, int64_t t, int64_t kv) const
    {
        return query(b, t, s.heads + s.kv_heads + kv);
    }
    __device__ int64_t output(int64_t b, int64_t t, int64_t h) const
    {
        return ((b * s.seq + t) * s.heads + h) * dim;
    }
    __device__ int64_t number(int64_t b, int64_t t, int64_t h) const
    {
        return (b * s.heads + h) * s.seq + t;
    }
    __device__ int64_t kv_of(int64_t h) const
    {
        return h / (s.heads / s.kv_heads);
    }
};

/* --- forward ---------------------------------------------------------------------------------- */

/* The running maximum (in units of log 2) and sum of the lane's two rows. */
struct running {
    float max[2], sum[2];
};

/* Scores become weights under the new maximum; what was added up under the old one shrinks. */
template <int D>
static __device__ void soften(float (&s)[TILE / 8][4], float (&acc)[D / 8][4], running &r,
                              float scale)
{
    float max[2] = {r.max[0], r.max[1]}, sum[2] = {0, 0}, shrink[2];

#pragma unroll
    for (int i = 0; i < TILE / 8; i++) {
        for (int j = 0; j < 4; j++) {
            s[i][j] *= scale * LOG2_E;
            max[j / 2] = fmaxf(max[j / 2], s[i][j]);
        }
    }
    for (int half = 0; half < 2; half++) {
        max[half] = row_max(max[half]);
        shrink[half] = exp2f(r.max[half] - max[half]);
        r.max[half] = max[half];
    }
#pragma unroll
    for (int i = 0; i < TILE / 8; i++) {
        for (int j = 0; j < 4; j++) {
            s[i][j] = exp2f(s[i][j] - max[j / 2]);
            sum[j / 2] += s[i][j];
        }
    }
    for (int half = 0; half < 2; half++) {
        r.sum[half] = r.sum[half] * shrink[half] + row_sum(sum[half]);
    }
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
        for (int j = 0; j < 4; j++) {
            acc[i][j] *= shrink[j / 2];
        }
    }
}

/* A block a tile of queries; the longest come first. */
template <typename T, int D>
static __global__ void __launch_bounds__(TILE_THREADS)
    tiles_forward_kernel(uint16_t *out, float *lse, const uint16_t *qkv, layout at)
{
    extern __shared__ __align__(128) uint16_t shared[];
    uint16_t *q = shared, *k = q + TILE * D,
             *v = k + 2 * TILE * D; /* two of each: one comes, one is read */
    int tile = static_cast<int>(gridDim.x - 1 - blockIdx.x);
    int64_t h = blockIdx.y, b = blockIdx.z, kv = at.kv_of(h), first = int64_t(tile) * TILE;
    int64_t rows = at.s.seq - first;
    int mine = threadIdx.x / WARP * WARP_ROWS;
    float acc[D / 8][4] = {};
    running r = {{-INFINITY, -INFINITY}, {0, 0}};

    copy_tile<D, TILE>(q, qkv + at.query(b, first, h), at.step, rows, at.dim);
    copy_tile<D, TILE>(k, qkv + at.key(b, 0, kv), at.step, at.s.seq, at.dim);
    copy_tile<D, TILE>(v, qkv + at.value(b, 0, kv), at.step, at.s.seq, at.dim);
    copies_end();
    for (int n = 0; n <= tile; n++) {
        const uint16_t *k_now = k + n % 2 * TILE * D, *v_now = v + n % 2 * TILE * D;
        float s[TILE / 8][4];

        if (n < tile) {
            int64_t next = int64_t(n + 1) * TILE;
            int other = (n + 1) % 2 * TILE * D;

            copy_tile<D, TILE>(k + other, qkv + at.key(b, next, kv), at.step, at.s.seq - next,
                               at.dim);
            copy_tile<D, TILE>(v + other, qkv + at.value(b, next, kv), at.step, at.s.seq - next,
                               at.dim);
        }
        copies_end();
        copies_done<1>();
        __syncthreads();
        row_dots<T, D, TILE>(s, q, mine, k_now);
        if (n == tile) {
#pragma unroll
            for (int i = 0; i < TILE / 8; i++) {
                for (int j = 0; j < 4; j++) {
                    s[i][j] = part_col(i, j) <= mine + part_row(j) ? s[i][j] : -INFINITY;
                }
            }
        }
        soften<D>(s, acc, r, at.scale);
        weigh_rows<T, D, TILE>(acc, s, v_now);
        __syncthreads(); /* the next turn's copies go where this one read */
    }
    store_rows<T, D>(out + at.output(b, first + mine, h), at.s.heads * at.dim, rows - mine, at.dim,
                     acc, 1 / r.sum[0], 1 / r.sum[1]);
    for (int half = 0; half < 2; half++) {
        int row = mine + part_row(2 * half);

        if (threadIdx.x % 4 == 0 && row < rows) {
            lse[at.number(b, first + row, h)] = (r.max[half] + log2f(r.sum[half])) * LN_2;
        }
    }
}

/* --- backward --------------------------------------------------------------------------------- */

/* delta = rowsum(dO * O): a warp a query. */
template <typename T>
static __global__ void delta_kernel(float *delta, const uint16_t *dout, const uint16_t *out,
                                    layout at)
{
    int64_t row = global_thread() / WARP, b = row / at.s.seq / at.s.heads;
    float sum = 0;

    if (row >= at.s.batch * at.s.heads * at.s.seq) {
        return;
    }
    int64_t o = at.output(b, row % at.s.seq, row / at.s.seq % at.s.heads);
    for (int i = threadIdx.x % WARP; i < at.dim; i += WARP) {
        sum += widen(T{}, dout[o + i]) * widen(T{}, out[o + i]);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) {
        delta[row] = sum;
    }
}

/* Keys and values of a tile, with one block; the queries that see them come by, of every head of
 * the group. The scores are held transposed: a warp's 16 rows are keys. */
template <typename T, int D, int Q>
static __global__ void __launch_bounds__(TILE_THREADS)
    dkv_kernel(uint16_t *dqkv, const uint16_t *dout, const uint16_t *qkv, const float *lse,
               const float *delta, layout at)
{
    extern __shared__ __align__(128) uint16_t shared[];
    uint16_t *k = shared, *v = k + TILE * D, *q = v + TILE * D, *d = q + Q * D;
    float *q_lse = reinterpret_cast<float *>(d + Q * D), *q_delta = q_lse + Q;
    int64_t first = int64_t(blockIdx.x) * TILE, kv = blockIdx.y, b = blockIdx.z;
    int64_t group = at.s.heads / at.s.kv_heads;
    int mine = threadIdx.x / WARP * WARP_ROWS;
    float dk[D / 8][4] = {}, dv[D / 8][4] = {};

    copy_tile<D, TILE>(k, qkv + at.key(b, first, kv), at.step, at.s.seq - first, at.dim);
    copy_tile<D, TILE>(v, qkv + at.value(b, first, kv), at.step, at.s.seq - first, at.dim);
    for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
        for (int64_t t = first; t < at.s.seq; t += Q) {
            int64_t rows = at.s.seq - t;
            float p[Q / 8][4], ds[Q / 8][4];

            copy_tile<D, Q>(q, qkv + at.query(b, t, h), at.step, rows, at.dim);
            copy_tile<D, Q>(d, dout + at.output(b, t, h), at.s.heads * at.dim, rows, at.dim);
            copies_end();
            copy_numbers<Q>(q_lse, lse + at.number(b, t, h), rows);
            copy_numbers<Q>(q_delta, delta + at.number(b, t, h), rows);
            copies_done<0>();
            __syncthreads();
            row_dots<T, D, Q>(p, k, mine, q);
            row_dots<T, D, Q>(ds, v, mine, d);
#pragma unroll
            for (int i = 0; i < Q / 8; i++) {
                for (int j = 0; j < 4; j++) {
                    int query = part_col(i, j);
                    bool sees = first + mine + part_row(j) <= t + query && query < rows;

                    p[i][j] = sees ? exp2f((p[i][j] * at.scale - q_lse[query]) * LOG2_E) : 0.0f;
                    ds[i][j] = p[i][j] * (ds[i][j] - q_delta[query]);
                }
            }
            weigh_rows<T, D, Q>(dv, p, d);
            weigh_rows<T, D, Q>(dk, ds, q);
            __syncthreads(); /* q and d are free for the next ones */
        }
    }
    int64_t rows = at.s.seq - first - mine;
    store_rows<T, D>(dqkv + at.key(b, first + mine, kv), at.step, rows, at.dim, dk, at.scale,
                     at.scale);
    store_rows<T, D>(dqkv + at.value(b, first + mine, kv), at.step, rows, at.dim, dv, 1, 1);
}

/* Queries of a tile; the keys that they see come by. */
template <typename T, int D, int K>
static __global__ void __launch_bounds__(TILE_THREADS)
    dq_kernel(uint16_t *dqkv, const uint16_t *dout, const uint16_t *qkv, const float *lse,
              const float *delta, layout at)
{
    extern __shared__ __align__(128) uint16_t shared[];
    uint16_t *q = shared, *d = q + TILE * D, *k = d + TILE * D, *v = k + K * D;
    int64_t first = int64_t(gridDim.x - 1 - blockIdx.x) * TILE, h = blockIdx.y, b = blockIdx.z;
    int64_t kv = at.kv_of(h), rows = at.s.seq - first;
    int mine = threadIdx.x / WARP * WARP_ROWS;
    float dq[D / 8][4] = {}, q_lse[2], q_delta[2];

    copy_tile<D, TILE>(q, qkv + at.query(b, first, h), at.step, rows, at.dim);
    copy_tile<D, TILE>(d, dout + at.output(b, first, h), at.s.heads * at.dim, rows, at.dim);
    for (int half = 0; half < 2; half++) {
        int row = mine + part_row(2 * half);
        int64_t n = at.number(b, first + row, h);

        q_lse[half] = row < rows ? lse[n] : 0.0f;
        q_delta[half] = row < rows ? delta[n] : 0.0f;
    }
    for (int64_t t = 0; t < min(at.s.seq, first + TILE); t += K) {
        float p[K / 8][4], ds[K / 8][4];

        copy_tile<D, K>(k, qkv + at.key(b, t, kv), at.step, at.s.seq - t, at.dim);
        copy_tile<D, K>(v, qkv + at.value(b, t, kv), at.step, at.s.seq - t, at.dim);
        copies_end();
        copies_done<0>();
        __syncthreads();
        row_dots<T, D, K>(p, q, mine, k);
        row_dots<T, D, K>(ds, d, mine, v);
#pragma unroll
        for (int i = 0; i < K / 8; i++) {
            for (int j = 0; j < 4; j++) {
                bool sees = t + part_col(i, j) <= first + mine + part_row(j);

                p[i][j] = sees ? exp2f((p[i][j] * at.scale - q_lse[j / 2]) * LOG2_E) : 0.0f;
                ds[i][j] = p[i][j] * (ds[i][j] - q_delta[j / 2]);
            }
        }
        weigh_rows<T, D, K>(dq, ds, k);
        __syncthreads();
    }
    store_rows<T, D>(dqkv + at.query(b, first + mine, h), at.step, rows - mine, at.dim, dq,
                     at.scale, at.scale);
}

/* --- launching -------------------------------------------------------------------------------- */

/* Shared memory beyond 48 KiB must be asked for, once a kernel. */
template <typename K> static bool allow_shared(K kernel, size_t size_bytes)
{
    return TRY_CUDA(cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                         cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(size_bytes))) == 0;
}

static dim3 grid_of(const attention_shape &s, int64_t heads)
{
    return dim3(blocks_for(s.seq, TILE), static_cast<unsigned>(heads),
                static_cast<unsigned>(s.batch));
}

template <typename T, int D>
static int tiles_forward(struct kstream *ks, void *out, void *lse, const void *qkv,
                         const layout &at)
{
    const size_t room = 5 * TILE * D * sizeof(uint16_t);

    if (!allow_shared(tiles_forward_kernel<T, D>, room)) {
        return E_CUDA;
    }
    tiles_forward_kernel<T, D><<<grid_of(at.s, at.s.heads), TILE_THREADS, room, ks->stream>>>(
        static_cast<uint16_t *>(out), static_cast<float *>(lse), static_cast<const uint16_t *>(qkv),
        at);
    return launched();
}

template <typename T, int D>
static int tiles_backward(struct kstream *ks, void *dqkv, const void *dout, const void *qkv,
                          const void *out, const void *lse, float *delta, const layout &at)
{
    /* A block keeps two results of D columns in registers: beside them there is room for this many
     * columns of scores. */
    constexpr int OTHERS = D <= 64 ? 64 : 32;
    const size_t room = 2 * (TILE + OTHERS) * D * sizeof(uint16_t) + 2 * OTHERS * sizeof(float);
    const uint16_t *x = static_cast<const uint16_t *>(qkv);
    const uint16_t *d = static_cast<const uint16_t *>(dout);
    const float *l = static_cast<const float *>(lse);
    uint16_t *dx = static_cast<uint16_t *>(dqkv);
    int64_t queries = at.s.batch * at.s.heads * at.s.seq;

    if (!allow_shared(dkv_kernel<T, D, OTHERS>, room) ||
        !allow_shared(dq_kernel<T, D, OTHERS>, room)) {
        return E_CUDA;
    }
    delta_kernel<T><<<blocks_for(queries * WARP, THREADS), THREADS, 0, ks->stream>>>(
        delta, d, static_cast<const uint16_t *>(out), at);
    dkv_kernel<T, D, OTHERS>
        <<<grid_of(at.s, at.s.kv_heads), TILE_THREADS, room, ks->stream>>>(dx, d, x, l, delta, at);
    dq_kernel<T, D, OTHERS>
        <<<grid_of(at.s, at.s.heads), TILE_THREADS, room, ks->stream>>>(dx, d, x, l, delta, at);
    return launched();
}

extern "C" int attention_tiles_forward(struct kstream *ks, enum dtype dt, void *out, void *lse,
                                       const void *qkv, const struct attention_shape *s)
{
    const layout at(*s);
    bool narrow = s->head_dim <= 64;

    if (dt == DT_BF16) {
        return narrow ? tiles_forward<bf16_tag, 64>(ks, out, lse, qkv, at)
                      : tiles_forward<bf16_tag, 128>(ks, out, lse, qkv, at);
    }
    return narrow ? tiles_forward<f16_tag, 64>(ks, out, lse, qkv, at)
                  : tiles_forward<f16_tag, 128>(ks, out, lse, qkv, at);
}

extern "C" int attention_tiles_backward(struct kstream *ks, enum dtype dt, void *dqkv,
                                        const void *dout, const void *qkv, const void *out,
                                        const void *lse, const struct attention_shape *s,
                                        void *delta)
{
    const layout at(*s);
    float *room = static_cast<float *>(delta);
    bool narrow = s->head_dim <= 64;

    if (dt == DT_BF16) {
        return narrow ? tiles_backward<bf16_tag, 64>(ks, dqkv, dout, qkv, out, lse, room, at)
                      : tiles_backward<bf16_tag, 128>(ks, dqkv, dout, qkv, out, lse, room, at);
    }
    return narrow ? tiles_backward<f16_tag, 64>(ks, dqkv, dout, qkv, out, lse, room, at)
                  : tiles_backward<f16_tag, 128>(ks, dqkv, dout, qkv, out, lse, room, at);
}
