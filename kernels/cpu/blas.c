#include "kernels/cpu/blas.h"

#include <cblas.h>
#include <stddef.h>
#include <strings.h>

const char *blas_better_core(void)
{
    /* What OpenBLAS falls back to; a processor that is one has no vectors of 256 bits. */
    if (strcasecmp(openblas_get_corename(), "Prescott") != 0) {
        return NULL;
    }
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
        return "SkylakeX";
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return "Haswell";
    }
#endif
    return NULL;
}
