/* Whether this build's kernels run here at all: a kernel that does nothing is launched and waited
 * for. */
#include <cuda_runtime.h>

#include "kernels/cuda/probe.h"

static __global__ void nothing_kernel()
{
}

extern "C" cudaError_t probe_run(void)
{
    cudaError_t rc;

    nothing_kernel<<<1, 1>>>();
    rc = cudaGetLastError();
    return rc != cudaSuccess ? rc : cudaDeviceSynchronize();
}
