#include "kernels/cuda/columns.cuh"

struct identity {
    __device__ double operator()(double x) const
    {
        return x;
    }
};

struct square {
    __device__ double operator()(double x) const
    {
        return x * x;
    }
};

/* The sum of a block's values, in thread 0. */
static __device__ double block_sum(double x)
{
    __shared__ double part[THREADS / WARP];

    x = warp_sum(x);
    if (threadIdx.x % WARP == 0) {
        part[threadIdx.x / WARP] = x;
    }
    __syncthreads();
    x = 0;
    for (int w = 0; threadIdx.x == 0 && w < THREADS / WARP; w++) {
        x += part[w];
    }
    return x;
}

template <int N, typename T, typename F>
static __global__ void partial_kernel(double *part, const T *x, int64_t n, F f)
{
    double sum = 0;

#pragma unroll 4
    for (int64_t i = global_thread() * N; i < n;
         i += static_cast<int64_t>(gridDim.x) * THREADS * N) {
        vec<T, N> v = load<N>(x + i);
        for (int j = 0; j < N; j++) {
            sum += f(static_cast<double>(get(v.v[j])));
        }
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        part[blockIdx.x] = sum;
    }
}

static __global__ void finish_kernel(double *out, const double *part, unsigned parts)
{
    double sum = 0;

    for (unsigned i = threadIdx.x; i < parts; i += THREADS) {
        sum += part[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        *out += sum;
    }
}

static __global__ void clip_kernel(double *norm, double *scale, const double *sumsq,
                                   double max_norm, double unscale)
{
    double n = unscale * sqrt(*sumsq);

    *norm = n;
    *scale = !isfinite(n)                   ? nan("")
             : max_norm > 0 && n > max_norm ? unscale * (max_norm / n)
                                            : unscale;
}

template <typename F>
static int add_all(struct kstream *ks, enum dtype dt, double *out, const void *x, int64_t n, F f)
{
    double *part = static_cast<double *>(ks->scratch);

    if (n == 0) {
        return 0;
    }
    return each_vector(dt, in_vectors(dt, n, x), [&](auto t, auto w) {
        using T = decltype(t);
        unsigned parts = min(blocks_for(n, THREADS * w.value), blocks_at_a_time(ks, THREADS));

        partial_kernel<w.value>
            <<<parts, THREADS, 0, ks->stream>>>(part, static_cast<const T *>(x), n, f);
        finish_kernel<<<1, THREADS, 0, ks->stream>>>(out, part, parts);
    });
}

extern "C" int sum_add_cuda(struct kstream *ks, enum dtype dt, double *out, const void *x,
                            int64_t n)
{
    return add_all(ks, dt, out, x, n, identity{});
}

extern "C" int sumsq_add_cuda(struct kstream *ks, enum dtype dt, double *out, const void *x,
                              int64_t n)
{
    return add_all(ks, dt, out, x, n, square{});
}

extern "C" int clip_scale_cuda(struct kstream *ks, double *norm, double *scale, const double *sumsq,
                               double max_norm, double unscale)
{
    clip_kernel<<<1, 1, 0, ks->stream>>>(norm, scale, sumsq, max_norm, unscale);
    return launched();
}
