/* kops_cuda() for build/simt/mpi/trainer: the whole trainer with the host's GPU, so that what only a run with a device does
 * (`--comm mpi` between GPUs, its checkpoints) is tested where there is none. Linked before plugin.c, whose place it takes.
 */
#include "tests/simt/device.h"

#include <string.h>

extern "C" const struct kops *kops_cuda(int, struct err *)
{
    static struct kops table;

    table = *simt_kops();
    table.name = "cuda";
    strcpy(table.device, "NVIDIA H100 of the host's"); /* whose rate need not be measured */
    return &table;
}
