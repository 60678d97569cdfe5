/* fault.h - keeps CUDA's own message when an operation failed: the code E_CUDA alone does not
 * help.
 *
 * The first message is kept, for the whole process and not for a stream: after a fault of the
 * device every call on it fails, with misleading messages. kops.fault() returns it. A result that
 * is not a fault (no room, no such algorithm) is not kept.
 *
 * threads  any
 * errors   fault_at() and fault_said() return E_CUDA, or E_SICK when the device itself broke;
 *          fault_at() returns 0 when there was no error
 */
#ifndef KERNELS_CUDA_FAULT_H
#define KERNELS_CUDA_FAULT_H

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "common/base/err.h"

/* E_SICK: memory or a link of this device is broken, and another process fails on it as well. All
 * other faults may be caused by a kernel, including cudaErrorHardwareStackError and
 * cudaErrorContained (a bad access to a peer's memory). */
static inline int fault_code(cudaError_t rc)
{
    return rc == cudaErrorECCUncorrectable || rc == cudaErrorNvlinkUncorrectable ? E_SICK : E_CUDA;
}

/* The runtime keeps its last error until it is read: reading it here prevents that a later call
 * is blamed. */
int fault_at(cudaError_t rc, const char *who, int line);
/* The error of a library on top of CUDA: its name, and the name of its status. */
int fault_said(const char *library, const char *status, const char *who, int line);

#define TRY_CUDA(call) fault_at(call, __func__, __LINE__)

#ifdef __cplusplus
}
#endif

#endif
