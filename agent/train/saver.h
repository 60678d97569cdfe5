/* saver.h - writes checkpoints while the model learns on.
 *
 * saver_save() copies what is to be kept into host memory and returns; a thread removes what crashes left behind and what is
 * older than the newest `keep`, then writes, syncs and renames it, and again removes what is one too many. One is under way at a time: the next waits for it. Where the host has no room for
 * a copy, saver_save() writes from the device's memory itself, and the model waits.
 *
 * A checkpoint that cannot be written leaves nothing, is told as a warning, and does not stop the run: the next one is
 * tried in its turn. saver_wait() gives the last one's error, for the end, where there is no next.
 *
 * owns     the copy and the thread; model, optimiser and companions are borrowed and must outlive it
 * threads  one at a time
 */
#ifndef AGENT_TRAIN_SAVER_H
#define AGENT_TRAIN_SAVER_H

#include "agent/train/checkpoint.h"
#include "agent/train/watchdog.h"

struct saver;

struct saver_options {
    const char *out;
    int64_t keep;
    bool writes;          /* not on all ranks: the others only give what they have of the state */
    int64_t resumed_step; /* of the checkpoint that the run goes on from; 0: of none */
    const struct companions *companions;
    bool products; /* keep their algorithms, too (products.h) */
};

MUST_USE int saver_open(const struct saver_options *o, struct model *m, struct optim *opt,
                        struct saver **out, struct err *e);
/* From now on the watchdog knows when a checkpoint is being written. It must outlive the saver. */
void saver_watch(struct saver *s, struct watchdog *w);
/* Waits for the one under way; then fails only when the device does. All ranks call it together. */
MUST_USE int saver_save(struct saver *s, const struct train_state *state, struct err *e);
/* Waits up to wait_ms; true when nothing is under way. */
bool saver_idle(struct saver *s, uint64_t wait_ms);
/* A number that grows while the one under way is being written. */
uint64_t saver_progress(const struct saver *s);
/* Until all is written; how the last one went. */
MUST_USE int saver_wait(struct saver *s, struct err *e);
void saver_close(struct saver **sp); /* NULL is fine; waits */

#endif
