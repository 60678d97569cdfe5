/* cuda_fp16.h - CUDA's half, by float16.h. */
#pragma once

#include "kernels/float16.h"

struct __half {
    uint16_t bits;
};

static inline float __half2float(__half x)
{
    return f16_widen(x.bits);
}

static inline __half __float2half_rn(float x)
{
    return {f16_round(x)};
}

static inline __half __ushort_as_half(uint16_t bits)
{
    return {bits};
}
