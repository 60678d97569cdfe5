/* workload.h - times the operations of one model's step one by one, for `trainer bench`, which
 * shows them before whole steps.
 *
 * Shapes, types and epilogues are those of block.c and pass.c for that model and batch: a figure
 * is the time that the operation takes in a step, alone on the device. The model is only read:
 * its memory need not be reserved, and each operation's operands are allocated and freed in turn.
 *
 * counts   gemm 2mnk; attention 2 * batch * heads * seq^2 * head_dim forward (the causal half) and
 *          2.5 times that backward; memory-bound operations the bytes that their headers state
 * errors   E_NOSPACE: an operation's operands do not fit; E_CUDA
 */
#ifndef AGENT_TRAIN_WORKLOAD_H
#define AGENT_TRAIN_WORKLOAD_H

#include "agent/train/model.h"
#include "agent/train/score.h"

struct workload {
    struct model *m;
    int64_t batch;
    int64_t seq;
    uint64_t least_ns; /* trial.h */
    struct scores *scores;
    char attention_by[sizeof(((struct attention_ready *)0)->by)]; /* set by workload_attention() */
};

/* Every product of a step: forward, the gradient of its input, the gradient of its weight. */
MUST_USE int workload_gemm(struct workload *w, struct err *e);
/* Plain copies of several sizes: the limit of all operations that memory bounds. */
MUST_USE int workload_copy(struct workload *w, struct err *e);
MUST_USE int workload_attention(struct workload *w, struct err *e);
/* Norms, positions, activations, embedding, cross-entropy, the optimiser. */
MUST_USE int workload_memory(struct workload *w, struct err *e);

#endif
