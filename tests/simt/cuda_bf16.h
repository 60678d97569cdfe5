/* cuda_bf16.h - CUDA's 16-bit float with f32's range, by float16.h. */
#pragma once

#include "kernels/float16.h"

struct __nv_bfloat16 {
    uint16_t bits;
};

static inline float __bfloat162float(__nv_bfloat16 x)
{
    return bf16_widen(x.bits);
}

static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    return {bf16_round(x)};
}

static inline __nv_bfloat16 __ushort_as_bfloat16(uint16_t bits)
{
    return {bits};
}
