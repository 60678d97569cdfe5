/* tuning.h - what was measured to be fastest, kept on disk: later runs and other ranks take the
 * same.
 *
 * A question is a file below $XDG_CACHE_HOME/trainer/<machine>/ (or ~/.cache/trainer/<machine>/),
 * its content the answer. Who answers first is right for all: a resumed run must multiply as the
 * unbroken one did, to the bit. What is read comes from outside: the caller judges it.
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

/* Makes the folder; `machine` names device, driver and library, whatever characters it has. */
void tuning_open(struct tuning *t, const char *machine);
bool tuning_find(const struct tuning *t, const char *question, void *answer, size_t size_bytes);
/* Keeps the answer, unless another was faster: *answer is then that one. False when it could not be
 * kept. */
bool tuning_keep(const struct tuning *t, const char *question, void *answer, size_t size_bytes);
/* What was found was of no use. */
void tuning_drop(const struct tuning *t, const char *question);

#endif
