/* norm.cuh - what layernorm and rmsnorm share: CENTRED is layernorm, which takes the mean away and
 * adds a shift.
 *
 * forward    a team of threads holds a row in registers: x is read once, y is written once
 * backward   dy, x and dx are read once, dx is written once. The same pass adds up dg and db, and
 *            the columns of dx when they are wanted: a thread keeps its columns and walks down the
 *            rows that are its team's; the teams' partial sums meet in columns.cuh's second stage
 *
 * A team is the threads of one threadIdx.y, a block one or several teams. What a thread can keep in
 * registers limits a row to NORM_MAX_COLUMNS.
 */
#pragma once

#include "kernels/cuda/columns.cuh"

enum { NORM_COLUMNS = 8, NORM_MAX_COLUMNS = 8192, NORM_MAX_ROWS = 1 << 30, THREADS_MAX = 1024 };

/* The team's sums, always in the same order. Teams of several warps meet at a barrier of the whole
 * block; `shared` is free again behind the next one. */
template <int K, typename R>
static __device__ __forceinline__ void team_sum(R (&x)[K], R (*shared)[K])
{
    unsigned warps = blockDim.x / WARP, first = threadIdx.y * warps;

    for (int k = 0; k < K; k++) {
        x[k] = warp_sum(x[k]);
    }
    if (warps == 1) {
        return;
    }
    for (int k = 0; threadIdx.x % WARP == 0 && k < K; k++) {
        shared[first + threadIdx.x / WARP][k] = x[k];
    }
    __syncthreads();
    for (int k = 0; k < K; k++) {
        x[k] = shared[first][k];
        for (unsigned w = 1; w < warps; w++) {
            x[k] += shared[first + w][k];
        }
    }
}

static inline unsigned team_of(int64_t cols, int64_t columns_a_thread)
{
    return blocks_for(blocks_for(cols, columns_a_thread), WARP) * WARP;
}

/* --- forward ---------------------------------------------------------------------------------- */

/* Vectors that a thread keeps of its row. */
template <int N> constexpr int norm_keep = N > 1 ? 4 : 8;

template <bool CENTRED, int N, typename T>
static __global__ void __launch_bounds__(THREADS_MAX)
    norm_forward_kernel(T *y, real<T> *mean, real<T> *rstd, const T *x, const T *g, const T *b,
                        int64_t rows, int cols, real<T> eps)
{
    using R = real<T>;
    __shared__ R shared[2][THREADS_MAX / WARP][1];
    int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
    constexpr int K = norm_keep<N>;
    vec<T, N> kept[K];
    R sum[1] = {}, m = 0, s;

    if (row >= rows) {
        return; /* a team of one warp, which meets nobody below */
    }
#pragma unroll
    for (int k = 0; k < K; k++) {
        int c = (k * blockDim.x + threadIdx.x) * N;
        if (c < cols) {
            kept[k] = load<N>(x + row * cols + c);
        }
        for (int j = 0; CENTRED && c < cols && j < N; j++) {
            sum[0] += get(kept[k].v[j]);
        }
    }
    if (CENTRED) {
        team_sum(sum, shared[0]);
        m = sum[0] / cols;
        sum[0] = 0;
    }
#pragma unroll
    for (int k = 0; k < K; k++) {
        int c = (k * blockDim.x + threadIdx.x) * N;
        for (int j = 0; c < cols && j < N; j++) {
            sum[0] += (get(kept[k].v[j]) - m) * (get(kept[k].v[j]) - m);
        }
    }
    team_sum(sum, shared[1]);
    s = 1 / sqrt(sum[0] / cols + eps);
#pragma unroll
    for (int k = 0; k < K; k++) {
        int c = (k * blockDim.x + threadIdx.x) * N;
        if (c < cols) {
            vec<T, N> gain = load<N>(g + c), shift = gain;
            if (CENTRED) {
                shift = load<N>(b + c);
            }
            for (int j = 0; j < N; j++) {
                R n = (get(kept[k].v[j]) - m) * s;
                put(kept[k].v[j], get(gain.v[j]) * n + (CENTRED ? get(shift.v[j]) : R(0)));
            }
            store<N>(y + row * cols + c, kept[k]);
        }
    }
    if (threadIdx.x == 0) {
        rstd[row] = s;
        if (CENTRED) {
            mean[row] = m;
        }
    }
}

template <bool CENTRED>
static int norm_forward(struct kstream *ks, enum dtype dt, void *y, void *mean, void *rstd,
                        const void *x, const void *g, const void *b, int64_t rows, int64_t cols,
                        double eps)
{
    if (rows * cols == 0) {
        return 0;
    }
    if (cols > NORM_MAX_COLUMNS) {
        return E_UNSUPPORTED;
    }
    return each_vector(dt, in_vectors(dt, cols, y, x, g, b), [&](auto t, auto w) {
        using T = decltype(t);
        using R = real<T>;
        constexpr int N = w.value;
        unsigned team = team_of(cols, norm_keep<N> * N), teams = team > WARP ? 1 : THREADS / WARP;

        norm_forward_kernel<CENTRED, N>
            <<<blocks_for(rows, teams), dim3(team, teams), 0, ks->stream>>>(
                static_cast<T *>(y), static_cast<R *>(mean), static_cast<R *>(rstd),
                static_cast<const T *>(x), static_cast<const T *>(g), static_cast<const T *>(b),
                rows, static_cast<int>(cols), static_cast<R>(eps));
    });
}

/* --- backward --------------------------------------------------------------------------------- */

/* Behind it x is news to the compiler: what was computed of it is computed again, and need not wait
 * in registers. */
template <int N, typename T> static __device__ __forceinline__ void renew(vec<T, N> &x)
{
#ifdef __CUDA_ARCH__
    if constexpr (sizeof x == sizeof(uint4)) {
        uint4 w;

        memcpy(&w, &x, sizeof w);
        asm volatile("" : "+r"(w.x), "+r"(w.y), "+r"(w.z), "+r"(w.w));
        memcpy(&x, &w, sizeof w);
    }
#else
    (void)x;
#endif
}

/* With n = (x - mean) * rstd and d = dy * g: dx += rstd * (d - avg(d) - n * avg(d * n)), without
 * avg(d) when not centred; dg is the sum of dy * n, db that of dy, dsum that of dx as it is stored.
 * `part` gets a matrix [teams, cols] of partial sums for each of them that there is. */
template <bool CENTRED, bool SUMMED, int N, typename T>
static __global__ void __launch_bounds__(THREADS_MAX)
    norm_backward_kernel(T *dx, real<T> *part, const T *dy, const T *x, const T *g,
                         const real<T> *mean, const real<T> *rstd, int rows, int cols)
{
    using R = real<T>;
    constexpr int K = NORM_COLUMNS / N;
    __shared__ R shared[2][THREADS_MAX / WARP][2];
    const int teams = gridDim.x * blockDim.y, team = blockIdx.x * blockDim.y + threadIdx.y;
    const int step = blockDim.x * N, begin = threadIdx.x * N;
    R gain_sum[K][N] = {}, shift_sum[K][N] = {}, dx_sum[K][N] = {};
    const R one_of_all = R(1) / cols;
    int turn = 0;

    /* All of a block take the same number of turns: they meet in each. */
    for (int row = team; row - static_cast<int>(threadIdx.y) < rows; row += teams, turn ^= 1) {
        const int64_t at = static_cast<int64_t>(row) * cols + begin;
        vec<T, N> d[K], in[K], old[K], gain[K];
        R sum[2] = {}, m = 0, s = 0;
        bool mine = row < rows;

        if (mine) {
            m = CENTRED ? mean[row] : R(0);
            s = rstd[row];
        }
        for (int k = 0; k < K; k++) {
            if (mine && begin + k * step < cols) {
                d[k] = load<N>(dy + at + k * step);
                in[k] = load<N>(x + at + k * step);
                old[k] = load<N>(dx + at + k * step);
                gain[k] = load<N>(g + begin +
                                  k * step); /* from the cache: widened once, it costs registers */
            }
        }
        for (int k = 0; k < K; k++) {
            for (int j = 0; mine && begin + k * step < cols && j < N; j++) {
                R n = (get(in[k].v[j]) - m) * s, e = get(d[k].v[j]), dn = e * get(gain[k].v[j]);

                gain_sum[k][j] += e * n;
                shift_sum[k][j] += e;
                sum[0] += dn * n;
                sum[1] += dn;
            }
        }
        team_sum(sum, shared[turn]);
        for (int k = 0; k < K; k++) {
            renew(d[k]);
            renew(in[k]);
            renew(old[k]);
            renew(gain[k]);
        }
        sum[0] *= one_of_all;
        sum[1] = CENTRED ? sum[1] * one_of_all : 0;
        for (int k = 0; k < K; k++) {
            if (mine && begin + k * step < cols) {
                for (int j = 0; j < N; j++) {
                    R n = (get(in[k].v[j]) - m) * s, dn = get(d[k].v[j]) * get(gain[k].v[j]);
                    put(old[k].v[j], get(old[k].v[j]) + s * (dn - sum[1] - n * sum[0]));
                    dx_sum[k][j] += get(old[k].v[j]);
                }
                store<N>(dx + at + k * step, old[k]);
            }
        }
    }
    const int64_t matrix = static_cast<int64_t>(teams) * cols;
    for (int k = 0; k < K; k++) {
        int64_t c = begin + k * step, at = team * static_cast<int64_t>(cols) + c;
        for (int j = 0; c < cols && j < N; j++) {
            part[at + j] = gain_sum[k][j];
            if (CENTRED) {
                part[at + j + matrix] = shift_sum[k][j];
            }
            if (SUMMED) {
                part[at + j + (CENTRED ? 2 : 1) * matrix] = dx_sum[k][j];
            }
        }
    }
}

template <bool CENTRED, bool SUMMED>
static int norm_backward_as(struct kstream *ks, enum dtype dt, void *dx, void *dg, void *db,
                            void *dsum, const void *dy, const void *x, const void *g,
                            const void *mean, const void *rstd, int64_t rows, int64_t cols)
{
    int rc = 0;

    if (rows * cols == 0) {
        return 0;
    }
    if (cols > NORM_MAX_COLUMNS || rows > NORM_MAX_ROWS) {
        return E_UNSUPPORTED;
    }
    int launch = each_vector(dt, in_vectors(dt, cols, dx, dy, x, g), [&](auto t, auto w) {
        using T = decltype(t);
        using R = real<T>;
        constexpr int N = w.value;
        unsigned team = team_of(cols, NORM_COLUMNS), teams = team > THREADS ? 1 : THREADS / team;
        unsigned blocks = min(blocks_for(rows, teams), blocks_at_a_time(ks, team * teams));
        R *part = static_cast<R *>(ks->scratch);
        column_sums<R> to = {{static_cast<R *>(dg)}, 1};

        if (CENTRED) {
            to.out[to.n++] = static_cast<R *>(db);
        }
        if (SUMMED) {
            to.out[to.n++] = static_cast<R *>(dsum);
        }
        norm_backward_kernel<CENTRED, SUMMED, N><<<blocks, dim3(team, teams), 0, ks->stream>>>(
            static_cast<T *>(dx), part, static_cast<const T *>(dy), static_cast<const T *>(x),
            static_cast<const T *>(g), static_cast<const R *>(mean), static_cast<const R *>(rstd),
            static_cast<int>(rows), static_cast<int>(cols));
        rc = columns_finish(ks, to, part, static_cast<int64_t>(blocks) * teams, cols);
    });
    return rc != 0 ? rc : launch;
}

/* With dsum or without. */
template <bool CENTRED>
static int norm_backward(struct kstream *ks, enum dtype dt, void *dx, void *dg, void *db,
                         void *dsum, const void *dy, const void *x, const void *g, const void *mean,
                         const void *rstd, int64_t rows, int64_t cols)
{
    return dsum != nullptr ? norm_backward_as<CENTRED, true>(ks, dt, dx, dg, db, dsum, dy, x, g,
                                                             mean, rstd, rows, cols)
                           : norm_backward_as<CENTRED, false>(ks, dt, dx, dg, db, dsum, dy, x, g,
                                                              mean, rstd, rows, cols);
}
