#include "kernels/cuda/fault.h"

#include <stdatomic.h>
#include <stdio.h>

#include "kernels/cuda/twins.h"

enum { FIRST_LATE = 700, LAST_LATE = 720 }; /* cudaErrorIllegalAddress and its neighbours */

static char first[240];
static atomic_int state; /* 0: nothing yet; 1: somebody writes; 2: it can be read */
static atomic_bool sick; /* the device has said so: what it says afterwards is of no weight */

static bool mine_to_tell(void)
{
    int none = 0;

    return atomic_compare_exchange_strong(&state, &none, 1);
}

int fault_at(cudaError_t rc, const char *who, int line)
{
    bool late = (int)rc >= FIRST_LATE && (int)rc < LAST_LATE;

    if (rc == cudaSuccess) {
        return 0;
    }
    (void)cudaGetLastError();
    if (fault_code(rc) == E_SICK) {
        atomic_store(&sick, true);
    }
    if (mine_to_tell()) {
        snprintf(first, sizeof first, "%s, line %d: %s (%d): %s%s", who, line, cudaGetErrorName(rc),
                 (int)rc, cudaGetErrorString(rc),
                 late ? "; an earlier kernel caused it: CUDA_LAUNCH_BLOCKING=1 shows which" : "");
        atomic_store(&state, 2);
    }
    return atomic_load(&sick) ? E_SICK : E_CUDA;
}

int fault_said(const char *library, const char *status, const char *who, int line)
{
    cudaError_t below = cudaGetLastError();

    if (fault_code(below) == E_SICK) {
        atomic_store(&sick, true);
    }
    if (mine_to_tell()) {
        snprintf(first, sizeof first, "%s, line %d: %s says %s%s%s", who, line, library, status,
                 below != cudaSuccess ? ", CUDA " : "",
                 below != cudaSuccess ? cudaGetErrorName(below) : "");
        atomic_store(&state, 2);
    }
    return atomic_load(&sick) ? E_SICK : E_CUDA;
}

const char *fault_cuda(void)
{
    return atomic_load(&state) == 2 ? first : "";
}
