#include "tests/simt/device.h"

#include "kernels/cuda/twins.h"
#include "tests/simt/simt.h"

void simt_schedule(unsigned seed)
{
    simt_set_order(seed == 0 ? SIMT_FORWARD : seed == 1 ? SIMT_BACKWARD : SIMT_SHUFFLED, seed);
}

const struct kops *simt_kops(void)
{
    static struct kops table;

    table = (struct kops)
    {
        .name = "simt", .device = "the host", .place = "", .bf16 = true,
#define OP(name) .name = name##_cuda,
#include "kernels/ops.def"
#undef OP
    };
    return &table;
}
