/* cudalib.h - CUDA's driver library, libcuda.so.1, if it is present: the functions that counting
 * and copying need.
 *
 * It needs no CUDA header. The functions are those of CUDA 4.0 and later, under the names that
 * the library has had since.
 *
 * owns     a cudalib is the caller's memory; the library stays open until the process ends
 * errors   E_NOTFOUND: no such library; E_UNSUPPORTED: it lacks a function. cuInit()'s result is
 *          in rc, 0 if all is well
 */
#ifndef AGENT_PREFLIGHT_CUDALIB_H
#define AGENT_PREFLIGHT_CUDALIB_H

#include "common/base/err.h"

typedef void cuda_context;
typedef void cuda_event;
typedef unsigned long long cuda_memory; /* an address on the device */

#define CUDA_CALLS(CALL)                                                                           \
    CALL(Init, "cuInit", (unsigned flags))                                                         \
    CALL(GetErrorString, "cuGetErrorString", (int rc, const char **text))                          \
    CALL(DeviceGetCount, "cuDeviceGetCount", (int *n))                                             \
    CALL(DeviceGet, "cuDeviceGet", (int *device, int i))                                           \
    CALL(DeviceGetPCIBusId, "cuDeviceGetPCIBusId", (char *text, int room, int device))             \
    CALL(CtxCreate, "cuCtxCreate_v2", (cuda_context * *out, unsigned flags, int device))           \
    CALL(CtxDestroy, "cuCtxDestroy_v2", (cuda_context * c))                                        \
    CALL(MemAlloc, "cuMemAlloc_v2", (cuda_memory * out, size_t n))                                 \
    CALL(MemFree, "cuMemFree_v2", (cuda_memory m))                                                 \
    CALL(MemHostAlloc, "cuMemHostAlloc", (void **out, size_t n, unsigned flags))                   \
    CALL(MemFreeHost, "cuMemFreeHost", (void *p))                                                  \
    CALL(MemcpyHtoD, "cuMemcpyHtoD_v2", (cuda_memory to, const void *from, size_t n))              \
    CALL(MemcpyDtoH, "cuMemcpyDtoH_v2", (void *to, cuda_memory from, size_t n))                    \
    CALL(MemcpyDtoD, "cuMemcpyDtoD_v2", (cuda_memory to, cuda_memory from, size_t n))              \
    CALL(CtxSynchronize, "cuCtxSynchronize", (void))

struct cudalib {
#define CALL(name, symbol, args) int(*name) args;
    CUDA_CALLS(CALL)
#undef CALL
    int rc; /* of cuInit(0) */
};

MUST_USE int cudalib_open(struct cudalib *out, struct err *e);
const char *cudalib_error(const struct cudalib *c, int rc);

#endif
