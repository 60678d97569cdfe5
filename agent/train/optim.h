/* optim.h - the optimiser: AdamW's moments, clipping.
 *
 * owns     struct optim holds the moments in the model's backend; the model is borrowed and must
 *          outlive it
 */
#ifndef AGENT_TRAIN_OPTIM_H
#define AGENT_TRAIN_OPTIM_H

#include "agent/train/model.h"
#include "agent/train/schedule.h"

struct optim_options {
    struct schedule schedule;
    double beta1;
    double beta2;
    double eps;
    double decay;
    double clip;   /* of the global norm; 0: none */
    uint64_t seed; /* of the rounding of narrow parameters */
};

struct optim {
    struct model *model;
    struct optim_options o;
    char *m; /* of the model's accum type, as v */
    char *v;
    double *scalar; /* device memory: sum of squares, norm, scale */
};

MUST_USE int optim_open(struct model *m, const struct optim_options *o, struct optim **out,
                        struct err *e);
void optim_close(struct optim **op); /* NULL is fine */
/* The norm of the model's gradients times `unscale` (1, except for f16's scaled loss), and the
 * clipping scale from it. */
void optim_clip(struct optim *o, double unscale);
/* Of the last optim_clip(), before clipping. Waits for the device. */
MUST_USE int optim_norm(struct optim *o, double *norm, struct err *e);
/* Updates the parameters with the clipped gradients; changes nothing when the norm is not finite.
 * Updates count from 1. */
void optim_update(struct optim *o, int64_t update);
/* Both. */
void optim_step(struct optim *o, int64_t update);
/* Rounds the masters into narrower parameters as update number `update` does; 0: to the nearest. */
void optim_refresh(struct optim *o, int64_t update);

#endif
