/* launch.cuh - what the launchers share: dispatch on the type, the grid, warp sums. Device code of
 * one translation unit. */
#pragma once

#include "common/base/err.h"
#include "kernels/cuda/fault.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda/twins.h"

enum { THREADS = 256, WARP = 32 };

static inline unsigned blocks_for(int64_t n, int64_t per_block)
{
    return static_cast<unsigned>((n + per_block - 1) / per_block);
}

/* Whether all launches were taken since it was last asked; the caller's name is for people. */
static inline int launched(const char *who = __builtin_FUNCTION(), int line = __builtin_LINE())
{
    return fault_at(cudaGetLastError(), who, line);
}

/* Calls f with a value of the type that dt names. */
template <typename F>
static int each_real(enum dtype dt, F f, const char *who = __builtin_FUNCTION(),
                     int line = __builtin_LINE())
{
    switch (dt) {
    case DT_F32:
        f(float{});
        break;
    case DT_F64:
        f(double{});
        break;
    case DT_BF16:
    case DT_F16:
        return E_UNSUPPORTED;
    }
    return launched(who, line);
}

/* Every lane gets the sum; always in the same order. */
template <typename T> static __device__ T warp_sum(T x)
{
    for (int step = WARP / 2; step > 0; step /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, step);
    }
    return x;
}

template <typename T> static __device__ T warp_max(T x)
{
    for (int step = WARP / 2; step > 0; step /= 2) {
        x = max(x, __shfl_xor_sync(0xffffffffu, x, step));
    }
    return x;
}

static __device__ inline int64_t global_thread()
{
    return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
