/* attention_plan.h - decides which kernel runs a shape: cuDNN's, our tiles or our rows; and what
 * a stream remembers about it. */
#ifndef KERNELS_CUDA_ATTENTION_PLAN_H
#define KERNELS_CUDA_ATTENTION_PLAN_H

#include "common/base/err.h"
#include "kernels/cuda/cudnn_attention.h"

/* A kind of shapes for which cuDNN's results were compared with ours. */
struct attention_kind {
    enum dtype dt;
    int64_t head_dim, group; /* query heads per key head */
    bool any_order, for_training;
};

enum { ATTENTION_KINDS_MAX = 16 };

struct attention_choice {
    struct cudnn_attention *cudnn; /* NULL: not opened yet, or not to be used */
    struct err why_not;            /* set when it was opened and is not to be used */
    struct attention_kind seen[ATTENTION_KINDS_MAX];
    int kinds;
};

void attention_choice_fini(struct attention_choice *c);

/* Runs both passes of a small shape like `s` by cuDNN and by our tiles. E_CORRUPT when they
 * differ, E_UNSUPPORTED when cuDNN does not support it. Allocates memory and waits for the
 * device, so it runs only when a shape is prepared. */
MUST_USE int attention_check(struct kstream *ks, enum dtype dt, const struct attention_shape *s,
                             bool for_training, struct err *e);

#endif
