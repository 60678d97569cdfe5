/* gpu.h - the GPUs that NVML names, as the checks go through them.
 *
 * NVML is opened by the first check of a process that asks; where it does not start, or names no
 * GPU, a check is skipped and says why.
 */
#ifndef AGENT_PREFLIGHT_GPU_H
#define AGENT_PREFLIGHT_GPU_H

#include "agent/preflight/look.h"
#include "agent/preflight/nvml.h"

#define GPUS_RESET_HINT                                                                            \
    "drain the node and reset the GPU (nvidia-smi -r); one that does it again goes back"

/* NULL: there is none to look at, and f is told. Then l->nvml_rc and l->nvml_why say whether NVML
 * started. */
const struct nvml *gpus_of(struct look *l, struct finding *f);

/* Those that have no handle, or get lost meanwhile, are told by `handle`. */
#define EACH_GPU(n, g)                                                                             \
    for (const struct nvml_gpu *g = (n)->gpu; g < (n)->gpu + (n)->n; g++)                          \
        if (g->dev != NULL)

#endif
