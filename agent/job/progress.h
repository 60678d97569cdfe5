/* progress.h - reads how far a training run has come from its output folder.
 *
 * A checkpoint-<step>/ folder is complete when it has that name (the trainer's and the Hugging
 * Face Trainer's); the last line of the trainer's metrics.jsonl has the last completed step.
 */
#ifndef AGENT_JOB_PROGRESS_H
#define AGENT_JOB_PROGRESS_H

#include <stdint.h>

struct progress {
    int64_t checkpoint; /* step of the newest; -1: none */
    int64_t step;       /* the last completed; -1: unknown */
    int64_t changed_ns; /* when metrics.jsonl was last written; 0: never */
};

#define PROGRESS_NONE ((struct progress){-1, -1, 0})

void progress_read(const char *folder,
                   struct progress *out); /* NULL or a missing folder: PROGRESS_NONE */
/* The same at the end of an attempt that began with `before`. An attempt that did not reach its
 * steps (it did not write metrics.jsonl) has no step: its failure says nothing about the next
 * one. */
void progress_since(const char *folder, const struct progress *before, struct progress *out);

#endif
