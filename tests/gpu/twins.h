/* twins.h - a backend's operations beside their meaning: the CPU's double on the same inputs.
 *
 * The measure is |difference| / |reference| over a whole tensor, on random shapes, odd ones too; a
 * NaN is never good. The same rows run on a GPU (tests/gpu/check.c) and on the host's double of one
 * (tests/unit/kernels/simt.c).
 */
#ifndef TESTS_GPU_TWINS_H
#define TESTS_GPU_TWINS_H

#include "common/base/check.h"
#include "kernels/ops.h"

struct twins {
    const struct kops *k;
    struct kstream *ks;
    enum dtype dt; /* of the tensors */
    uint64_t seed;
    int shrink;          /* large extents are so many times smaller; 0 and 1: they are not */
    int round;           /* of this row: shapes that are not drawn take turns */
    double worst;        /* of this row */
    const char *trouble; /* an operation that failed, */
    int trouble_rc;      /* and how */
    char shape[120];     /* of the round that runs, or that had trouble */
    /* The first element that is off by more than the bound: where, what came, what was wanted. */
    char told[240];
    char note[200]; /* for people: what ran it */
};

enum { TWIN_F32 = 1 << DT_F32, TWIN_ALL = 1 << DT_F32 | 1 << DT_BF16 | 1 << DT_F16 };

struct twin {
    const char *name; /* NULL ends a list */
    void (*check)(struct twins *c);
    unsigned types; /* 1 << DT_*: that it has */
    int rounds;     /* at most, where one is dear; 0: as many as asked for */
};

extern const struct twin twins_of_operations[];
extern const struct twin twins_of_models[];

/* One row in one type, `rounds` times on other shapes. */
bool twins_hold(struct twins *c, const struct twin *t, enum dtype dt, int rounds);
double twins_bound(enum dtype dt);

/* For the checks: what they do, and what they saw. */
void twins_shape(struct twins *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
void twins_trouble(struct twins *c, int rc, const char *what);
void twins_worse(struct twins *c, double off);

#endif
