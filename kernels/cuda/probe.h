/* probe.h - does the device run what this build has? Asked once, before anything is taken from
 * it. */
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
