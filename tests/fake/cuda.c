/* libcuda.so.1 whose GPUs are the host's memory: well, or as $FAKE_CUDA says.
 *
 * "gpus=8;init=802;1.flip=1;hang=1": a number for all GPUs or for one. flip changes a byte of what
 * comes back, fail is what copies answer, hang never returns from cuInit().
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/preflight/cudalib.h"

static int current; /* the device whose context was made last */

static int number(int i, const char *name, int otherwise)
{
    const char *all = getenv("FAKE_CUDA");
    char want[2][64];

    snprintf(want[0], sizeof want[0], "%d.%s=", i, name);
    snprintf(want[1], sizeof want[1], "%s=", name);
    for (int k = 0; k < 2 && all != NULL; k++) {
        for (const char *p = all; *p != '\0'; p += strcspn(p, ";"), p += *p == ';') {
            if (strncmp(p, want[k], strlen(want[k])) == 0) {
                return atoi(p + strlen(want[k]));
            }
        }
    }
    return otherwise;
}

int cuInit(unsigned flags);
int cuGetErrorString(int rc, const char **text);
int cuDeviceGetCount(int *n);
int cuDeviceGet(int *device, int i);
int cuDeviceGetPCIBusId(char *text, int room, int device);
int cuCtxCreate_v2(cuda_context **out, unsigned flags, int device);
int cuCtxDestroy_v2(cuda_context *c);
int cuMemAlloc_v2(cuda_memory *out, size_t n);
int cuMemFree_v2(cuda_memory m);
int cuMemHostAlloc(void **out, size_t n, unsigned flags);
int cuMemFreeHost(void *p);
int cuMemcpyHtoD_v2(cuda_memory to, const void *from, size_t n);
int cuMemcpyDtoH_v2(void *to, cuda_memory from, size_t n);
int cuMemcpyDtoD_v2(cuda_memory to, cuda_memory from, size_t n);
int cuCtxSynchronize(void);

int cuInit(unsigned flags)
{
    while (number(-1, "hang", 0) != 0) {
        pause();
    }
    return flags != 0 ? 1 : number(-1, "init", 0);
}

int cuGetErrorString(int rc, const char **text)
{
    *text = rc == 2 ? "out of memory" : "unknown error";
    return 0;
}

int cuDeviceGetCount(int *n)
{
    *n = number(-1, "gpus", 8);
    return 0;
}

int cuDeviceGet(int *device, int i)
{
    *device = i;
    return 0;
}

int cuDeviceGetPCIBusId(char *text, int room, int device)
{
    snprintf(text, (size_t)room, "0000:%02X:00.0", 0x10 + device);
    return 0;
}

int cuCtxCreate_v2(cuda_context **out, unsigned flags, int device)
{
    (void)flags;
    current = device;
    *out = &current;
    return number(device, "context", 0);
}

int cuCtxDestroy_v2(cuda_context *c)
{
    (void)c;
    return 0;
}

int cuMemAlloc_v2(cuda_memory *out, size_t n)
{
    *out = (cuda_memory)(uintptr_t)malloc(n);
    return *out != 0 ? number(current, "alloc", 0) : 2;
}

int cuMemFree_v2(cuda_memory m)
{
    free((void *)(uintptr_t)m);
    return 0;
}

int cuMemHostAlloc(void **out, size_t n, unsigned flags)
{
    (void)flags;
    *out = malloc(n);
    return *out != NULL ? 0 : 2;
}

int cuMemFreeHost(void *p)
{
    free(p);
    return 0;
}

int cuMemcpyHtoD_v2(cuda_memory to, const void *from, size_t n)
{
    memcpy((void *)(uintptr_t)to, from, n);
    return number(current, "fail", 0);
}

int cuMemcpyDtoH_v2(void *to, cuda_memory from, size_t n)
{
    memcpy(to, (const void *)(uintptr_t)from, n);
    if (number(current, "flip", 0) != 0) {
        ((char *)to)[n / 3] ^= 4;
    }
    return number(current, "fail", 0);
}

int cuMemcpyDtoD_v2(cuda_memory to, cuda_memory from, size_t n)
{
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, n);
    return 0;
}

int cuCtxSynchronize(void)
{
    return 0;
}
