/* libcuda.so.1 as CUDA's runtime finds it on a machine where CUDA does not start: what we say then
 * is tested.
 *
 * FAKE_CUDA_RC is what cuInit() answers (100: no device), FAKE_CUDA_VERSION what the driver is for
 * (12040 is 12.4).
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { NO_DEVICE = 100, NOW = 13000 };

int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int cuGetProcAddress(const char *name, void **out, int version, uint64_t flags);
int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *found);

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? (int)strtol(text, NULL, 10) : otherwise;
}

int cuInit(unsigned flags)
{
    (void)flags;
    return number("FAKE_CUDA_RC", 0);
}

int cuDriverGetVersion(int *version)
{
    *version = number("FAKE_CUDA_VERSION", NOW);
    return 0;
}

/* Every other call. */
static int nothing_here(void)
{
    return number("FAKE_CUDA_RC", NO_DEVICE);
}

/* ISO C has no cast from a function to an object pointer; POSIX promises that the bits are the
 * same. */
#define ADDRESS(fn) (*(void **)(void *)&(fn))

int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *found)
{
    int (*init)(unsigned) = cuInit, (*which)(int *) = cuDriverGetVersion,
        (*other)(void) = nothing_here;
    int (*ask)(const char *, void **, int, uint64_t, int *) = cuGetProcAddress_v2;

    (void)version;
    (void)flags;
    if (found != NULL) {
        *found = 0;
    }
    *out = strcmp(name, "cuInit") == 0               ? ADDRESS(init)
           : strcmp(name, "cuDriverGetVersion") == 0 ? ADDRESS(which)
           : strcmp(name, "cuGetProcAddress") == 0   ? ADDRESS(ask)
                                                     : ADDRESS(other);
    return 0;
}

int cuGetProcAddress(const char *name, void **out, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(name, out, version, flags, NULL);
}
