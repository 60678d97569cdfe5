/* loader.h - reads a run's samples one step ahead: a thread reads the next step's while the
 * device computes the present one.
 *
 * Which sample goes to which rank depends only on ranks times micro-batches: more ranks with less
 * accumulation see the same samples in the same step. There are two buffers of one step each, in
 * memory from which the backend copies at full speed (host_alloc). So taking a step's samples
 * waits for no disk and no page fault, and a failing disk is an error of that step.
 *
 * owns     the buffers and the thread; data and operations are borrowed and must outlive it
 * threads  loader_next() from one
 * errors   those of data_sample(), when the step that lacks the sample is requested
 */
#ifndef AGENT_TRAIN_LOADER_H
#define AGENT_TRAIN_LOADER_H

#include "agent/train/data.h"
#include "kernels/ops.h"

struct loader_plan {
    uint64_t first; /* the run's sample with which the next step begins */
    int64_t batch;  /* sequences of a micro-batch on a rank */
    int64_t micros; /* micro-batches of a step on a rank */
    int64_t seq;
    int rank;
    int ranks;
};

struct loader;

MUST_USE int loader_open(const struct data *d, const struct kops *k, const struct loader_plan *p,
                         struct loader **out, struct err *e);
void loader_close(struct loader **lp); /* NULL is fine */
/* The next step's samples on this rank: `micros` times batch x seq tokens, and the token after
 * each. Borrowed until the next call, before which the device must have copied them. */
MUST_USE int loader_next(struct loader *l, const int32_t **token, const int32_t **target,
                         struct err *e);

#endif
