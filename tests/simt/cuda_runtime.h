/* cuda_runtime.h - as much of CUDA's as the kernels' launchers use, over tests/simt/simt.h. */
#pragma once

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct simt_stream *cudaStream_t;
typedef float *cudaEvent_t; /* when it was recorded */
typedef enum {
    cudaSuccess,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorIllegalAddress = 700
} cudaError_t;
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone };

struct cudaDeviceProp {
    char name[256];
};

#ifdef __cplusplus
extern "C" {
#endif
/* Moved by what takes time: the events' clock. */
float simt_clock_ms(void);
void simt_clock_advance(float ms);
#ifdef __cplusplus
}
#endif

static inline cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

static inline const char *cudaGetErrorName(cudaError_t rc)
{
    return rc == cudaErrorInvalidConfiguration ? "cudaErrorInvalidConfiguration"
           : rc == cudaErrorIllegalAddress     ? "cudaErrorIllegalAddress"
                                               : "cudaErrorMemoryAllocation";
}

static inline const char *cudaGetErrorString(cudaError_t rc)
{
    return rc == cudaErrorMemoryAllocation ? "out of memory" : "not as it should be";
}

static inline cudaError_t cudaDeviceSynchronize(void)
{
    return cudaSuccess;
}

static inline cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

static inline cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    (void)device;
    strcpy(prop->name, "the host");
    return cudaSuccess;
}

static inline cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 0;
    return cudaSuccess;
}

static inline cudaError_t cudaMalloc(void **out, size_t size_bytes)
{
    *out = malloc(size_bytes);
    return *out != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

static inline cudaError_t cudaFree(void *p)
{
    free(p);
    return cudaSuccess;
}

static inline cudaError_t cudaMemsetAsync(void *p, int value, size_t size_bytes,
                                          cudaStream_t stream)
{
    (void)stream;
    memset(p, value, size_bytes);
    return cudaSuccess;
}

static inline cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                                enum cudaStreamCaptureStatus *status)
{
    (void)stream;
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

static inline cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    *out = (cudaEvent_t)malloc(sizeof **out);
    return *out != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

static inline cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

static inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)stream;
    *event = simt_clock_ms();
    return cudaSuccess;
}

static inline cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    (void)event;
    return cudaSuccess;
}

static inline cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    *ms = *end - *begin;
    return cudaSuccess;
}

#ifdef __cplusplus
#    include "tests/simt/simt.h"

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize,
    cudaFuncAttributePreferredSharedMemoryCarveout
};
enum { cudaSharedmemCarveoutMaxShared = 100 };
enum cudaDeviceAttr { cudaDevAttrMaxSharedMemoryPerBlockOptin };

/* Little shared memory, so that rows need not be long to have no room in it. */
static inline cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int)
{
    *value = 6 << 10;
    return cudaSuccess;
}

static inline cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int)
{
    return cudaSuccess;
}
#endif
