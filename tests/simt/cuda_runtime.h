/* cuda_runtime.h - as much of CUDA's as the kernels' launchers use, over tests/simt/simt.h. */
#pragma once

typedef struct simt_stream *cudaStream_t;

#ifdef __cplusplus
#    include "tests/simt/simt.h"

enum cudaError_t { cudaSuccess };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };

static inline cudaError_t cudaGetLastError()
{
    return cudaSuccess;
}

static inline cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int)
{
    return cudaSuccess;
}
#endif
