#include <stdio.h>
#include <stdlib.h>

#include "common/base/err.h"
#include "kernels/cuda/fault.h"
#include "kernels/cuda/probe.h"
#include "kernels/cuda/twins.h"
#include "kernels/plugin.h"

#ifndef CUDA_ARCHS
#    define CUDA_ARCHS "?"
#endif

plugin_cuda_fn plugin_cuda;

/* common/base/check.c logs, and the log is the program's: this shared object has its own last
 * words. */
void check_failed(const char *what, const char *file, int line)
{
    fprintf(stderr, "%s:%d: %s does not hold\n", file, line, what);
    abort();
}

/* "13.0" of 13000 */
static const char *version(int n, char to[16])
{
    snprintf(to, 16, "%d.%d", n / 1000, n % 1000 / 10);
    return to;
}

static void explain_driver(char *why, size_t room)
{
    char have[16], want[16];
    int driver = 0, runtime = 0;

    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (driver == 0) {
        snprintf(why, room, "no NVIDIA driver (libcuda.so.1) on this machine");
    } else {
        snprintf(why, room,
                 "the driver supports CUDA %s, but this build needs %s; install a newer driver",
                 version(driver, have), version(runtime, want));
    }
}

/* What CUDA said in its own words, and what helps where we know it. */
static int explain_cuda_error(cudaError_t rc, const struct cudaDeviceProp *prop, char *why,
                              size_t room)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    (void)cudaGetLastError(); /* no later call is to be blamed */
    if (rc == cudaErrorInsufficientDriver) {
        explain_driver(why, room);
    } else if (rc == cudaErrorNoDevice) {
        snprintf(why, room, "no device is visible%s%.60s%s",
                 visible != NULL ? " (CUDA_VISIBLE_DEVICES=" : "", visible != NULL ? visible : "",
                 visible != NULL ? ")" : "");
    } else if (rc == cudaErrorSystemNotReady) {
        snprintf(why, room, "the NVSwitches are not set up; check that nvidia-fabricmanager runs");
    } else if (rc == cudaErrorDevicesUnavailable) {
        snprintf(why, room, "the device is in exclusive use by another process");
    } else if (rc == cudaErrorNoKernelImageForDevice || rc == cudaErrorUnsupportedPtxVersion ||
               rc == cudaErrorInvalidDeviceFunction) {
        snprintf(why, room,
                 "%.60s has compute capability %d.%d, but this build is for " CUDA_ARCHS
                 " (%s); build it with make CUDA_ARCH=%d%d",
                 prop->name, prop->major, prop->minor, cudaGetErrorName(rc), prop->major,
                 prop->minor);
    } else {
        snprintf(why, room, "%s (%d): %s", cudaGetErrorName(rc), (int)rc, cudaGetErrorString(rc));
    }
    return fault_code(rc) == E_SICK ? E_SICK : E_UNSUPPORTED;
}

/* Who sees one device alone was given that one (Slurm's --gpus-per-task), whatever its number on
 * the node is. */
static int number_of(int device, int count)
{
    return count == 1 ? 0 : device;
}

/* Needs a driver and a device that runs our kernels: without them the CPU's table serves. */
int plugin_cuda(int device, struct kops *out, char *why, size_t room)
{
    struct cudaDeviceProp prop = {0};
    cudaError_t rc;
    int count = 0;

    rc = cudaGetDeviceCount(&count);
    device = number_of(device, count);
    if (rc == cudaSuccess && device >= count) {
        snprintf(why, room, "device %d was requested, but only %d are visible", device, count);
        return E_UNSUPPORTED;
    }
    if (rc == cudaSuccess) {
        rc = cudaSetDevice(device);
    }
    if (rc == cudaSuccess) {
        rc = cudaGetDeviceProperties(&prop, device);
    }
    if (rc == cudaSuccess) {
        rc = probe_run();
    }
    if (rc != cudaSuccess) {
        return explain_cuda_error(rc, &prop, why, room);
    }
    *out = (struct kops)
    {
        .name = "cuda",
#define OP(name) .name = name##_cuda,
#include "kernels/ops.def"
#undef OP
    };
    snprintf(out->device, sizeof out->device, "%.80s", prop.name);
    if (cudaDeviceGetPCIBusId(out->place, sizeof out->place, device) != cudaSuccess) {
        (void)cudaGetLastError(); /* no later call is to be blamed */
        out->place[0] = '\0';
    }
    out->stream_bytes = CUDA_STREAM_BYTES;
    out->bf16 = prop.major >= 8; /* since Ampere */
    return 0;
}
