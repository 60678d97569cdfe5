/* schedule.h - the learning rate over a run's steps, and what else of a run's course follows from
 * its options.
 *
 * A checkpoint keeps the recipe of its run (state.h). A run that goes on by another one says what
 * that changes.
 *
 * threads  any
 */
#ifndef AGENT_TRAIN_SCHEDULE_H
#define AGENT_TRAIN_SCHEDULE_H

#include "common/base/buf.h"

struct schedule {
    double lr;
    double min_lr;
    int64_t warmup; /* steps of a linear rise */
    int64_t steps;  /* the cosine ends here */
};

/* Of step 1, 2, ... */
double schedule_lr(const struct schedule *s, int64_t step);

struct recipe {
    struct schedule schedule; /* its steps are 0: not known, as in checkpoints of before */
    int64_t batch;            /* sequences of a micro-batch on a rank */
    int64_t accum;            /* micro-batches of a step */
    int64_t ranks;            /* that divide the samples */
    int64_t tp;               /* ranks that cut each one's model; 0: not known */
};

/* Where a run stands that goes on. */
struct recipe_place {
    int64_t step;
    int64_t updates;
    uint64_t samples; /* taken so far */
    uint64_t windows; /* samples of an epoch */
    uint64_t tokens;  /* seen so far */
    int64_t seq;
};

bool recipe_known(const struct recipe *r);
/* One sentence on what `now` changes for a run that went by `before`. Adds nothing when that is
 * nothing. */
void recipe_changes(const struct recipe *before, const struct recipe *now,
                    const struct recipe_place *at, struct buf *out);

#endif
