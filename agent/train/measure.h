/* measure.h - computes a model's mean loss over the windows of some data, in the files' order.
 *
 * Ranks divide the batches: rank i mod ranks computes batch i. The losses of batches are added in
 * their order, on whatever rank they were computed, so the sum has the same bits on any number of
 * ranks.
 */
#ifndef AGENT_TRAIN_MEASURE_H
#define AGENT_TRAIN_MEASURE_H

#include "agent/train/data.h"
#include "agent/train/model.h"
#include "kernels/comm.h"

struct measured {
    double loss; /* mean nats per token */
    uint64_t tokens;
    uint64_t windows;
};

/* The model must have room for `batch` windows. At most `batches` of them; 0: all. With a comm,
 * all its ranks call it, and the result is the same on each. NULL: a single rank. */
MUST_USE int measure(struct model *m, const struct data *d, int64_t batch, int64_t batches,
                     struct comm *comm, struct measured *out, struct err *e);

#endif
