/* schedule.h - the learning rate over a run's steps, and the other settings that determine a
 * run's course.
 *
 * A checkpoint keeps the recipe of its run (state.h). A run that resumes with another recipe
 * reports what that changes.
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
    struct schedule schedule; /* steps 0: unknown, as in old checkpoints */
    int64_t batch;            /* sequences of a micro-batch on a rank */
    int64_t accum;            /* micro-batches of a step */
    int64_t ranks;            /* ranks that divide the samples */
    int64_t tp;               /* ranks that divide each model; 0: unknown */
};

/* The position of a resumed run. */
struct recipe_place {
    int64_t step;
    int64_t updates;
    uint64_t samples; /* taken so far */
    uint64_t windows; /* samples of an epoch */
    uint64_t tokens;  /* seen so far */
    int64_t seq;
};

bool recipe_known(const struct recipe *r);
/* Appends a sentence about what `now` changes for a run with the recipe `before`; nothing if
 * there is no change. */
void recipe_changes(const struct recipe *before, const struct recipe *now,
                    const struct recipe_place *at, struct buf *out);

#endif
