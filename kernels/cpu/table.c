#include "kernels/ops.h"

const struct kops *kops_cpu(void)
{
    static const struct kops table = {
        .name = "cpu",
        .device = "CPU",
#define OP(name) .name = name##_cpu,
#include "kernels/ops.def"
#undef OP
    };

    return &table;
}
