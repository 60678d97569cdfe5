#include <stdio.h>
#include <stdlib.h>

#include "common/base/err.h"
#include "kernels/cuda/twins.h"
#include "kernels/plugin.h"

#include <cuda_runtime.h>

plugin_cuda_fn plugin_cuda;

/* common/base/check.c logs, and the log is the program's: this shared object has its own last words. */
void check_failed(const char *what, const char *file, int line)
{
    fprintf(stderr, "%s:%d: %s does not hold\n", file, line, what);
    abort();
}

/* Needs a driver and a device: without them the CPU's table serves. */
int plugin_cuda(int device, struct kops *out, char *why, size_t room)
{
    struct cudaDeviceProp prop;
    cudaError_t rc;
    int count = 0;

    rc = cudaGetDeviceCount(&count);
    if (rc == cudaSuccess && device >= count) {
        snprintf(why, room, "device %d is wanted, the machine has %d", device, count);
        return E_UNSUPPORTED;
    }
    if (rc == cudaSuccess) {
        rc = cudaSetDevice(device);
    }
    if (rc == cudaSuccess) {
        rc = cudaGetDeviceProperties(&prop, device);
    }
    if (rc != cudaSuccess) {
        snprintf(why, room, "%s", cudaGetErrorString(rc));
        return E_UNSUPPORTED;
    }
    *out = (struct kops)
    {
        .name = "cuda",
#define OP(name) .name = name##_cuda,
#include "kernels/ops.def"
#undef OP
    };
    snprintf(out->device, sizeof out->device, "%.80s", prop.name);
    return 0;
}
