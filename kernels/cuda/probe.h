/* probe.h - finds out whether the device can run this build. Called once, before the device is
 * used. */
#ifndef KERNELS_CUDA_PROBE_H
#define KERNELS_CUDA_PROBE_H

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t probe_run(void);
#ifdef __cplusplus
}
#endif

#endif
