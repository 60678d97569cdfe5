/* trial.h - measures how long an operation takes: its operands in a backend's memory, and a clock
 * that waits for the device.
 *
 * Operands are random: a chip that is limited by its power multiplies zeros faster than other
 * numbers. A trial holds its memory until trial_clear(); the first error is kept, and all later
 * calls do nothing.
 *
 * owns     the operands; the backend's stream is borrowed
 * threads  one
 */
#ifndef AGENT_TRAIN_TRIAL_H
#define AGENT_TRAIN_TRIAL_H

#include "kernels/ops.h"

enum { TRIAL_OPERANDS = 16 };

struct trial {
    const struct kops *k;
    struct kstream *ks;
    uint64_t least_ns; /* the least time for which an operation is run */
    int rc;
    void *taken[TRIAL_OPERANDS];
    int count;
};

/* n numbers in [-1, 1); NULL when there is no room, and t->rc says so. */
void *trial_noise(struct trial *t, enum dtype dt, int64_t n);
/* n tokens below vocab, distributed like words: token i with a probability like 1 / (i + 1).
 * Uniform ones would never make the embedding add many gradients to one row. */
int32_t *trial_tokens(struct trial *t, int64_t n, int64_t vocab);
/* Zeros. */
void *trial_room(struct trial *t, size_t size_bytes);
/* The median time of a run, in ns; 0 after an error. run() queues the operation and returns its
 * code. */
double trial_time(struct trial *t, int (*run)(void *arg), void *arg);
void trial_clear(struct trial *t); /* frees the operands; the error stays */

/* The same tokens, in host memory. */
void trial_words(int32_t *out, size_t n, int64_t vocab, uint64_t seed);

#endif
