/* device.h - the CUDA operations as a table, on the GPU of the host's that simt.h describes.
 *
 * Kernels are ours, compiled for the host; cuBLASLt's double (cublasLt.h) multiplies, so that how
 * we ask it is tested too. What mem_alloc() gives ends where memory may not be touched.
 */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif
#include "kernels/ops.h"

const struct kops *simt_kops(void);
/* 0: first things first; 1: last things first; more: shuffled by it. */
void simt_schedule(unsigned seed);
#ifdef __cplusplus
}
#endif
