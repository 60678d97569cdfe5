/* twins.h - a backend's operations beside their meaning: the CPU's double on the same f32 inputs.
 *
 * The measure is |difference| / |reference| over a whole tensor, on random shapes, odd ones too; a NaN is never good. The
 * same rows run on a GPU (tests/gpu/check.c) and on the host's double of one (tests/unit/kernels/simt.c).
 */
#ifndef TESTS_GPU_TWINS_H
#define TESTS_GPU_TWINS_H

#include "kernels/ops.h"

struct twins {
    const struct kops *k;
    struct kstream *ks;
    uint64_t seed;
    double worst;        /* of this row */
    const char *trouble; /* an operation that failed */
};

struct twin {
    const char *name; /* NULL ends a list */
    void (*check)(struct twins *c);
};

extern const struct twin twins_of_operations[];
extern const struct twin twins_of_models[];

/* One row, `rounds` times on other shapes. */
bool twins_hold(struct twins *c, const struct twin *t, int rounds, double bound);

/* For the checks: what they saw. */
void twins_trouble(struct twins *c, int rc, const char *what);
void twins_worse(struct twins *c, double off);

#endif
