/* fault.h - what CUDA said when an operation failed: E_CUDA alone mends nothing.
 *
 * The first words are kept, for the process and not for a stream: after a fault of the device every
 * call on it fails, with words that lead astray. kops.fault() hands them to people. An answer that
 * is no fault (no room, no such algorithm) is not told here.
 *
 * threads  any
 * errors   fault_at() and fault_said() return E_CUDA, or E_SICK when it was the device itself that
 *          broke; fault_at() 0 when there was nothing to say
 */
#ifndef KERNELS_CUDA_FAULT_H
#define KERNELS_CUDA_FAULT_H

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "common/base/err.h"

/* E_SICK: memory or a link of this device is broken, and another process fails on it as well. All
 * other faults may have their cause in a kernel, cudaErrorHardwareStackError and cudaErrorContained
 * (a bad access to a peer's memory) among them. */
static inline int fault_code(cudaError_t rc)
{
    return rc == cudaErrorECCUncorrectable || rc == cudaErrorNvlinkUncorrectable ? E_SICK : E_CUDA;
}

/* The runtime keeps its last error until somebody asks: it is taken away here, so that no later
 * call is blamed. */
int fault_at(cudaError_t rc, const char *who, int line);
/* What a library on top of CUDA says: its name, and the name of its status. */
int fault_said(const char *library, const char *status, const char *who, int line);

#define TRY_CUDA(call) fault_at(call, __func__, __LINE__)

#ifdef __cplusplus
}
#endif

#endif
