/* twins.h - the CUDA twins' prototypes, made from the CPU's: a launcher of another type does not
 * compile. */
#ifndef KERNELS_CUDA_TWINS_H
#define KERNELS_CUDA_TWINS_H

#ifdef __cplusplus
extern "C" {
#endif
#include "kernels/ops.h"

#define OP(name) extern __typeof__(name##_cpu) name##_cuda;
#include "kernels/ops.def"
#undef OP
#ifdef __cplusplus
}
#endif

#endif
