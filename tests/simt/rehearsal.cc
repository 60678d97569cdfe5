/* kops_cuda() for build/simt/gpu-check: the host's GPU, with a fault when one is asked for, so that
 * what gpu-check says of a broken device is seen where there is none.
 *
 *     SIMT_FAULT=wrong | nan | hang | crash | refused | broken      all in add, f32 alone
 *
 * refused is a launch that CUDA turns down; broken is a kernel that ran into bad memory, which
 * shows at the next wait.
 */
#include <signal.h>
#include <unistd.h>

#include <string>

#include "kernels/cuda/fault.h"
#include "tests/simt/device.h"

extern "C" {
#include "common/base/err.h"
}

static struct kops table;
static const struct kops *whole;
static bool broken;

static std::string wish()
{
    const char *text = getenv("SIMT_FAULT");

    return text != nullptr ? text : "";
}

static int faulty_add(struct kstream *ks, enum dtype dt, void *y, const void *a, const void *b,
                      int64_t n)
{
    std::string fault = dt == DT_F32 ? wish() : "";
    int rc = whole->add(ks, dt, y, a, b, n);

    if (fault == "wrong") {
        static_cast<float *>(y)[n / 2] += 1000;
    } else if (fault == "nan") {
        static_cast<float *>(y)[n - 1] = NAN;
    } else if (fault == "hang") {
        pause();
    } else if (fault == "crash") {
        raise(SIGSEGV);
    } else if (fault == "refused") {
        rc = fault_at(cudaErrorInvalidConfiguration, "add_cuda", 16);
    } else if (fault == "broken") {
        broken = true;
    }
    return rc;
}

/* A broken device fails every call. */
static int faulty_get(struct kstream *ks, void *to, const void *from, size_t size_bytes)
{
    return broken ? fault_at(cudaErrorIllegalAddress, "mem_get_cuda", 139)
                  : whole->mem_get(ks, to, from, size_bytes);
}

extern "C" const struct kops *kops_cuda(int device, struct err *e)
{
    if (device != 0) {
        err_set(e, E_UNSUPPORTED, "the host has one GPU");
        return nullptr;
    }
    whole = simt_kops();
    table = *whole;
    table.add = faulty_add;
    table.mem_get = faulty_get;
    return &table;
}
