/* mma.cuh - kernels/cuda/mma.cuh on the host: fragments as the PTX manual lays them out, one lane's
 * part at a time. */
#pragma once

#include <cuda_runtime.h>

#include "kernels/float16.h"

struct bf16_tag {
};
struct f16_tag {
};

static inline float widen(bf16_tag, uint16_t x)
{
    return bf16_widen(x);
}

static inline float widen(f16_tag, uint16_t x)
{
    return f16_widen(x);
}

static inline uint32_t pack(bf16_tag, float low, float high)
{
    return bf16_round(low) | static_cast<uint32_t>(bf16_round(high)) << 16;
}

static inline uint32_t pack(f16_tag, float low, float high)
{
    return f16_round(low) | static_cast<uint32_t>(f16_round(high)) << 16;
}

/* --- fragments -------------------------------------------------------------------------------- */

struct simt_mma {
    float *c;
    const uint32_t *a;
    uint32_t b[2];
};

template <typename T> static inline float simt_half(uint32_t both, int which)
{
    return widen(T{}, static_cast<uint16_t>(which == 0 ? both : both >> 16));
}

template <typename T> static void simt_mma_all(void *lane[32])
{
    float a[16][16], b[16][8];

    for (int l = 0; l < 32; l++) {
        auto *x = static_cast<simt_mma *>(lane[l]);
        int g = l / 4, t = l % 4;

        for (int i = 0; i < 4; i++) {
            for (int half = 0; half < 2; half++) {
                a[g + i % 2 * 8][2 * t + half + i / 2 * 8] = simt_half<T>(x->a[i], half);
            }
        }
        for (int i = 0; i < 2; i++) {
            for (int half = 0; half < 2; half++) {
                b[2 * t + half + i * 8][g] = simt_half<T>(x->b[i], half);
            }
        }
    }
    for (int l = 0; l < 32; l++) {
        auto *x = static_cast<simt_mma *>(lane[l]);

        for (int i = 0; i < 4; i++) {
            int row = l / 4 + i / 2 * 8, col = l % 4 * 2 + i % 2;

            for (int k = 0; k < 16; k++) {
                x->c[i] += a[row][k] * b[k][col];
            }
        }
    }
}

template <typename T>
static inline void mma(T, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    simt_mma mine = {c, a, {b0, b1}};

    simt_warp(0xffffffffu, &mine, simt_mma_all<T>);
}

struct simt_matrices {
    const uint16_t *row;
    uint32_t *r;
};

template <bool TRANSPOSED> static void simt_matrices_all(void *lane[32])
{
    for (int l = 0; l < 32; l++) {
        for (int m = 0; m < 4; m++) {
            uint32_t both = 0;

            for (int half = 0; half < 2; half++) {
                int row = TRANSPOSED ? l % 4 * 2 + half : l / 4;
                int col = TRANSPOSED ? l / 4 : l % 4 * 2 + half;
                auto *holder = static_cast<simt_matrices *>(lane[m * 8 + row]);

                both |= static_cast<uint32_t>(holder->row[col]) << 16 * half;
            }
            static_cast<simt_matrices *>(lane[l])->r[m] = both;
        }
    }
}

static inline void load_matrices(uint32_t (&r)[4], const void *row)
{
    simt_matrices mine = {static_cast<const uint16_t *>(row), r};

    simt_warp(0xffffffffu, &mine, simt_matrices_all<false>);
}

static inline void load_matrices_transposed(uint32_t (&r)[4], const void *row)
{
    simt_matrices mine = {static_cast<const uint16_t *>(row), r};

    simt_warp(0xffffffffu, &mine, simt_matrices_all<true>);
}

/* --- copies ----------------------------------------------------------------------------------- */

static inline void copy_16(void *to, const void *from, bool valid)
{
    simt_copy_16(to, from, valid);
}

static inline void copies_end()
{
    simt_copies_end();
}

template <int LEFT> static inline void copies_done()
{
    simt_copies_done(LEFT);
}
