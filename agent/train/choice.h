/* choice.h - which token comes next: a draw from what a model's logits say, narrowed to the likely
 * ones.
 *
 * The likeliest top_k are kept, of those as few as make top_p of their probability, then one is
 * drawn by its share of that. The order of the likely ones is total (equal logits go by token), so
 * the same draw gives the same token anywhere.
 *
 * errors   E_CORRUPT: logits that are no numbers, as a broken model has them
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
