/* stream.h - what a CUDA stream carries with it: the libraries, their plans, and scratch memory for sums in two stages. */
#ifndef KERNELS_CUDA_STREAM_H
#define KERNELS_CUDA_STREAM_H

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "kernels/cuda/attention_plan.h"
#include "kernels/ops.h"

enum { PLANS_MAX = 128, WORKSPACE_BYTES = 32 << 20, SCRATCH_BYTES = 64 << 20 };

/* One shape of matmul, described and with its algorithm chosen once: the same one in every step. */
struct plan {
    enum dtype dt, out;
    int64_t m, n, k;
    unsigned flags;
    int with_bias;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
};

struct kstream {
    cudaStream_t stream;
    cublasLtHandle_t lt;
    void *workspace; /* cuBLASLt's */
    void *scratch;   /* used and free again inside one operation */
    struct plan plan[PLANS_MAX];
    int plans;
    int sm; /* the device's compute capability: 90 for 9.0 */
    struct attention_choice attention;
};

#endif
