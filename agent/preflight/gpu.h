/* gpu.h - the GPUs that NVML lists, as the checks iterate over them.
 *
 * The first check of a process that needs NVML opens it. If it does not start, or lists no GPU, a
 * check is skipped and says why.
 */
#ifndef AGENT_PREFLIGHT_GPU_H
#define AGENT_PREFLIGHT_GPU_H

#include "agent/preflight/look.h"
#include "agent/preflight/nvml.h"

#define GPUS_RESET_HINT                                                                            \
    "drain the node and reset the GPU (nvidia-smi -r); return a GPU that fails again for "         \
    "replacement"

/* NULL: there is none to check, and f says so. Then l->nvml_rc and l->nvml_why say whether NVML
 * started. */
const struct nvml *gpus_of(struct look *l, struct finding *f);

/* GPUs without a handle, or lost in the meantime, are reported by `handle`. */
#define EACH_GPU(n, g)                                                                             \
    for (const struct nvml_gpu *g = (n)->gpu; g < (n)->gpu + (n)->n; g++)                          \
        if (g->dev != NULL)

#endif
