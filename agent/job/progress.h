/* progress.h - how far a training run has come, by what stands in its output folder.
 *
 * checkpoint-<step>/ folders are complete by their name (the trainer's and the Hugging Face
 * Trainer's); the last line of the trainer's metrics.jsonl has the last step that was done.
 */
#ifndef AGENT_JOB_PROGRESS_H
#define AGENT_JOB_PROGRESS_H

#include <stdint.h>

struct progress {
    int64_t checkpoint; /* step of the newest; -1: none */
    int64_t step;       /* the last that was done; -1: not known */
    int64_t changed_ns; /* when metrics.jsonl was last written; 0: never */
};

#define PROGRESS_NONE ((struct progress){-1, -1, 0})

void progress_read(const char *folder,
                   struct progress *out); /* NULL or no such folder: PROGRESS_NONE */
/* The same at the end of an attempt that began with `before`. An attempt that did not come to its
 * steps (it did not write metrics.jsonl) has no step: where it failed says nothing about the next
 * one. */
void progress_since(const char *folder, const struct progress *before, struct progress *out);

#endif
