/* float16.h - the two 16-bit floats as bits: bf16 (f32's range, 8 bits of precision), f16 (11
 * bits, up to 65504).
 *
 * widen         exact round         to the nearest, halves to the even one stochastic    up or
 * down at random, so that the mean of many roundings is the value: `noise` is 32 random bits.
 *               Representable values stay; below 2^-33, f16 has no room for the odds and gives 0
 *
 * Values that are too large become infinite, NaN stays NaN. No compiler type is used: not every
 * compiler has them.
 */
#ifndef KERNELS_FLOAT16_H
#define KERNELS_FLOAT16_H

#include <string.h>

#include "kernels/dev.h"

static inline HOST_DEVICE uint32_t float_bits(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline HOST_DEVICE float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Truncated, and odd if a bit was lost: rounding that to 16 bits gives the same as rounding x. */
static inline HOST_DEVICE float float_odd(double x)
{
    float f = (float)x;
    uint32_t bits = float_bits(f);
    bool beyond = x < 0 ? (double)f < x : (double)f > x;

    return (double)f == x ? f : float_of((bits - beyond) | 1);
}

/* --- bf16: the upper half of an f32 ----------------------------------------------------------- */

static inline HOST_DEVICE float bf16_widen(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

static inline HOST_DEVICE uint16_t bf16_round(float x)
{
    uint32_t u = float_bits(x), nan = (u & 0x7fffffffu) > 0x7f800000u;

    return (uint16_t)(nan ? u >> 16 | 0x40 : (u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline HOST_DEVICE uint16_t bf16_stochastic(float x, uint32_t noise)
{
    uint32_t u = float_bits(x), nan = (u & 0x7fffffffu) > 0x7f800000u;

    return (uint16_t)(nan ? u >> 16 | 0x40 : (u + (noise & 0xffff)) >> 16);
}

/* --- f16: 5 bits of exponent (bias 15), 10 of mantissa ---------------------------------------- */

enum {
    F16_TOO_LARGE = 0x47800000, /* 65536 as f32 bits */
    F16_NORMAL = 0x38800000,    /* 2^-14, the smallest normal number */
    F16_BIAS = (127 - 15) << 23
};

static inline HOST_DEVICE float f16_widen(uint16_t h)
{
    /* As f32 bits the exponent is 112 too small, also where it is 0: one multiplication, exact. */
    float x = float_of((uint32_t)(h & 0x7fff) << 13) * 0x1p112f;
    uint32_t special = x >= 65536 ? 0x7f800000u : 0; /* infinite or NaN: the mantissa stays */

    return float_of((uint32_t)(h & 0x8000) << 16 | float_bits(x) | special);
}

static inline HOST_DEVICE uint32_t f16_special(uint32_t magnitude)
{
    return magnitude > 0x7f800000u ? 0x7e00 : 0x7c00;
}

static inline HOST_DEVICE uint16_t f16_round(float x)
{
    uint32_t u = float_bits(x), a = u & 0x7fffffffu;
    /* Near 0.5 an f32 has steps of 2^-24, as f16 has below its normal numbers. */
    uint32_t small = float_bits(float_of(a) + 0.5f) - float_bits(0.5f);
    uint32_t normal = (a - F16_BIAS + 0xfff + (a >> 13 & 1)) >> 13;
    uint32_t h = a >= F16_TOO_LARGE ? f16_special(a) : a < F16_NORMAL ? small : normal;

    return (uint16_t)((u >> 16 & 0x8000) | h);
}

static inline HOST_DEVICE uint16_t f16_stochastic(float x, uint32_t noise)
{
    uint32_t u = float_bits(x), a = u & 0x7fffffffu, sign = u >> 16 & 0x8000;
    uint32_t shift = a < F16_NORMAL ? 126 - (a >> 23) : 13; /* bits to lose */
    uint64_t from = a < F16_NORMAL ? (a & 0x7fffff) | 0x800000 : a - F16_BIAS;

    if (a >= F16_TOO_LARGE) {
        return (uint16_t)(sign | f16_special(a));
    }
    if (shift > 32) {
        return (uint16_t)sign;
    }
    return (uint16_t)(sign | (from + (noise & ((UINT64_C(1) << shift) - 1))) >> shift);
}

#endif
