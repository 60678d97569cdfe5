/* simt.h - a GPU of a kind on the host, so that tests run our CUDA kernels where there is no
 * device.
 *
 * kernels/cuda/<name>.cu is passed through rewrite.py (launches, shared memory) and compiled as C++
 * with this folder before the real headers: <cuda_runtime.h> is its own. Every CUDA thread is a
 * fiber; it runs until it waits for others, at a barrier or in an operation of its warp. Blocks run
 * one after another.
 *
 * finds    wrong indexing (memory ends at a page that may not be touched), a missing barrier or
 *          wait (another order of threads gives other results; shared memory begins as NaN), lanes
 *          that do not meet (it aborts and says where), wide accesses to crooked addresses (a trap)
 * not      speed, register pressure, bank conflicts, races between blocks
 *
 * threads  one of the host's
 */
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/simt/runtime.h"

/* --- the language ----------------------------------------------------------------------------- */

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__      static
#define __launch_bounds__(...)
#define __restrict__

using std::max;
using std::min;

struct alignas(8) uint2 {
    unsigned x, y;
};

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c)
    {
    }
};

struct simt_thread {
    dim3 thread, block, block_size, grid_size;
};
extern simt_thread *simt_now; /* the thread that runs */

#define threadIdx (simt_now->thread)
#define blockIdx  (simt_now->block)
#define blockDim  (simt_now->block_size)
#define gridDim   (simt_now->grid_size)

/* --- launching -------------------------------------------------------------------------------- */

enum simt_order { SIMT_FORWARD, SIMT_BACKWARD, SIMT_SHUFFLED };

/* In which order blocks, warps and lanes take their turns; a warp runs until it waits for others.
 * Copies into shared memory arrive as late as they may (forward), at once (backward), or either
 * way. */
void simt_set_order(simt_order order, uint64_t seed);
void simt_run(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()> &kernel);

struct simt_launch {
    dim3 grid, block;
    size_t shared_bytes;
    const void *stream;
    simt_launch(dim3 g, dim3 b, size_t shared = 0, const void *on = nullptr)
        : grid(g), block(b), shared_bytes(shared), stream(on)
    {
    }
    /* The kernel has its arguments by value: it runs when its stream gets there. */
    void operator()(const std::function<void()> &kernel) const
    {
        simt_launch now = *this;

        simt_enqueue_kernel(
            stream, [now, kernel] { simt_run(now.grid, now.block, now.shared_bytes, kernel); });
    }
};

/* The block's dynamic shared memory. */
void *simt_shared();

/* --- what threads do together ----------------------------------------------------------------- */

/* The last lane to come runs `all` with what each brought (NULL: not in the mask); then all go
 * on. */
void simt_warp(unsigned mask, void *mine, void (*all)(void *lane[32]));
/* Waits for the block; the sum of what was brought. */
int simt_block(int brought);
void simt_copy_16(void *to, const void *from, bool valid);
void simt_copies_end();
void simt_copies_done(int left);

static inline void __syncthreads()
{
    simt_block(0);
}

static inline int __syncthreads_or(int x)
{
    return simt_block(x != 0) != 0;
}

static inline int __syncthreads_count(int x)
{
    return simt_block(x != 0);
}

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    int nothing;

    simt_warp(mask, &nothing, [](void *[32]) {});
}

template <typename T> struct simt_exchange {
    T value, result;
    int from;
    bool vote;
};

template <typename T> static inline T simt_shuffle(unsigned mask, T value, int from)
{
    simt_exchange<T> mine = {value, value, from, false};

    simt_warp(mask, &mine, [](void *lane[32]) {
        for (int i = 0; i < 32; i++) {
            auto *x = static_cast<simt_exchange<T> *>(lane[i]);
            if (x != nullptr && x->from >= 0 && x->from < 32 && lane[x->from] != nullptr) {
                x->result = static_cast<simt_exchange<T> *>(lane[x->from])->value;
            }
        }
    });
    return mine.result;
}

static inline int simt_lane()
{
    return static_cast<int>((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) %
                            32);
}

template <typename T> static inline T __shfl_sync(unsigned mask, T x, int from, int width = 32)
{
    return simt_shuffle(mask, x, (simt_lane() & ~(width - 1)) | (from & (width - 1)));
}

template <typename T> static inline T __shfl_xor_sync(unsigned mask, T x, int by)
{
    return simt_shuffle(mask, x, simt_lane() ^ by);
}

template <typename T> static inline T __shfl_down_sync(unsigned mask, T x, int by)
{
    return simt_shuffle(mask, x, simt_lane() + by);
}

template <typename T> static inline T __shfl_up_sync(unsigned mask, T x, int by)
{
    return simt_shuffle(mask, x, simt_lane() - by);
}

static inline unsigned __ballot_sync(unsigned mask, int vote)
{
    simt_exchange<unsigned> mine = {0, 0, 0, vote != 0};

    simt_warp(mask, &mine, [](void *lane[32]) {
        unsigned votes = 0;
        for (int i = 0; i < 32; i++) {
            auto *x = static_cast<simt_exchange<unsigned> *>(lane[i]);
            votes |= static_cast<unsigned>(x != nullptr && x->vote) << i;
        }
        for (int i = 0; i < 32; i++) {
            if (lane[i] != nullptr) {
                static_cast<simt_exchange<unsigned> *>(lane[i])->result = votes;
            }
        }
    });
    return mine.result;
}

static inline int __any_sync(unsigned mask, int vote)
{
    return __ballot_sync(mask, vote) != 0;
}

static inline int __all_sync(unsigned mask, int vote)
{
    return __ballot_sync(mask, !vote) == 0;
}

/* Threads run one at a time. */
template <typename T> static inline T atomicAdd(T *to, T x)
{
    T old = *to;

    *to = old + x;
    return old;
}

/* --- words of the language that are functions ------------------------------------------------- */

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x));
}

template <typename To, typename From> static inline To simt_bits(From x)
{
    To to;

    static_assert(sizeof to == sizeof x, "bits of one size");
    memcpy(&to, &x, sizeof to);
    return to;
}

static inline float __uint_as_float(unsigned x)
{
    return simt_bits<float>(x);
}

static inline unsigned __float_as_uint(float x)
{
    return simt_bits<unsigned>(x);
}

static inline uint32_t __umulhi(uint32_t a, uint32_t b)
{
    return static_cast<uint32_t>((static_cast<uint64_t>(a) * b) >> 32);
}

static inline uint64_t __umul64hi(uint64_t a, uint64_t b)
{
    return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
}

static inline float rsqrtf(float x)
{
    return 1 / sqrtf(x);
}

static inline double rsqrt(double x)
{
    return 1 / sqrt(x);
}

#define __expf     expf
#define __logf     logf
#define __fsqrt_rn sqrtf

template <typename T> static inline T __ldg(const T *p)
{
    return *p;
}

template <typename T> static inline void __stwb(T *p, T x)
{
    *p = x;
}

static inline float __fdividef(float a, float b)
{
    return a / b;
}
