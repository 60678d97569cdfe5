/* measure.h - a model's mean loss over the windows of some data, in the files' order. */
#ifndef AGENT_TRAIN_MEASURE_H
#define AGENT_TRAIN_MEASURE_H

#include "agent/train/data.h"
#include "agent/train/model.h"

struct measured {
    double loss; /* mean nats a token */
    uint64_t tokens;
    uint64_t windows;
};

/* The model must have room for `batch` windows. At most `batches` of them, all when 0. */
MUST_USE int measure(struct model *m, const struct data *d, int64_t batch, int64_t batches,
                     struct measured *out, struct err *e);

#endif
