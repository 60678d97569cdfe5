/* tuning.h - keeps on disk what was measured to be fastest, so that later runs and other ranks
 * use the same.
 *
 * A question is a file below $XDG_CACHE_HOME/trainer/<machine>/ (or ~/.cache/trainer/<machine>/),
 * and its content is the answer. The first answer counts for all: a resumed run must multiply as
 * the uninterrupted one did, to the bit. Answers come from outside: the caller checks them.
 *
 * threads  any; other processes at the same time
 */
#ifndef KERNELS_CUDA_TUNING_H
#define KERNELS_CUDA_TUNING_H

#include <stdbool.h>
#include <stddef.h>

struct tuning {
    char folder[3072]; /* "": nothing is kept, so nothing should be measured */
};

/* Makes the folder; `machine` names device, driver and library, in any characters. */
void tuning_open(struct tuning *t, const char *machine);
bool tuning_find(const struct tuning *t, const char *question, void *answer, size_t size_bytes);
/* Keeps the answer, unless another process was first: then *answer becomes that one. False when
 * it could not be kept. */
bool tuning_keep(const struct tuning *t, const char *question, void *answer, size_t size_bytes);
/* The kept answer cannot be used. */
void tuning_drop(const struct tuning *t, const char *question);

#endif
