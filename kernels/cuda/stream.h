/* stream.h - the state of a CUDA stream: the libraries, their plans, and scratch memory for sums
 * in two stages. */
#ifndef KERNELS_CUDA_STREAM_H
#define KERNELS_CUDA_STREAM_H

#include <cuda_runtime.h>

#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/matmul_plan.h"
#include "kernels/ops.h"

enum { SCRATCH_BYTES = 64 << 20 };

struct kstream {
    cudaStream_t stream;
    cudaEvent_t waited;     /* recorded after the work that a wait is for */
    int (*poll)(void *arg); /* stream_watch() */
    void *poll_arg;
    void *scratch; /* used and free again inside one operation */
    int sm;        /* the device's compute capability: 90 for 9.0 */
    unsigned multiprocessors;
    struct matmul_plans matmul;
    struct attention_choice attention;
};

#endif
