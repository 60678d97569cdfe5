/* flops.h - the operations that a token costs, and the peak of the chip: their quotient is the
 * model FLOPs utilisation (MFU).
 *
 * A token costs 6 operations for each parameter that multiplies it (2 forward, 4 backward) and 12
 * * layers * heads * head_dim * seq for attention, including the masked half; recomputed
 * activations are not counted.
 *
 * source   Chowdhery et al. 2022, arXiv:2204.02311 (PaLM), appendix B
 */
#ifndef AGENT_TRAIN_FLOPS_H
#define AGENT_TRAIN_FLOPS_H

#include "agent/train/layout.h"
#include "kernels/ops.h"

double flops_of_token(const struct model_config *c, const struct layout *l, int64_t seq);

struct flops_peak {
    double per_s;
    bool measured; /* by a multiplication of ours, because the chip is not in peaks.def */
};

/* Takes some 20 ms and memory for three matrices when it has to measure. */
MUST_USE int flops_peak(const struct kops *k, struct kstream *ks, enum dtype dt,
                        struct flops_peak *out, struct err *e);

#endif
