/* choice.h - chooses the next token: draws from a model's logits, narrowed to the likely ones.
 *
 * It keeps the likeliest top_k, of those as few as make up top_p of their probability, and draws
 * one by its probability among them. The order of the likely ones is total (equal logits are
 * ordered by token), so the same draw gives the same token everywhere.
 *
 * errors   E_CORRUPT: logits that are not numbers, as a broken model has them
 */
#ifndef AGENT_TRAIN_CHOICE_H
#define AGENT_TRAIN_CHOICE_H

#include "common/base/err.h"

struct choice {
    float logit;
    int32_t token;
};

struct choosing {
    int64_t top_k;      /* 0: all */
    double top_p;       /* in (0, 1]; 1: all of those */
    double temperature; /* 0: always the likeliest */
};

/* Reorders c, which holds n >= 1; u is uniform in (0, 1). */
MUST_USE int choice_draw(struct choice *c, int64_t n, const struct choosing *how, double u,
                         int32_t *token, struct err *e);

#endif
