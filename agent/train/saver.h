/* saver.h - writes checkpoints while training continues; every rank writes its share.
 *
 * saver_save() copies what this rank is to write into host memory and returns; a thread writes
 * it. Of the moments these are the rank's own slices. The model is gathered group by group, and
 * whole tensors are kept by the rank that writes them: about 12 bytes a parameter, divided by the
 * number of ranks. If the host has no room for a copy, saver_save() writes directly from the
 * device's memory, and training waits.
 *
 *     IDLE --saver_save()--> WRITING --this rank's files are written, or could not be--> WRITTEN
 *     WRITTEN --saver_settle(): all ranks are WRITTEN--> first rank: ENDING, others: IDLE
 *     ENDING --committed, or dropped where a rank could not write--> IDLE
 *
 * The ranks exchange their progress between steps, by sums that the caller makes: only the main
 * thread communicates with other ranks. A single rank settles by itself. One checkpoint is in
 * progress at a time.
 *
 * A checkpoint that cannot be written leaves no folder, is logged as a warning, and does not stop
 * the run: the next one is tried at its usual time. saver_wait() returns the last one's error,
 * for the end, where there is no next. When a rank's error ends the run (watchdog.h), or
 * saver_close() comes first, the first rank still commits what all have written.
 *
 * The first rank removes the remains of crashes, and checkpoints older than the newest `keep`,
 * before and after.
 *
 * owns     the copy and the thread; model, optimiser and companions are borrowed and must outlive
 *          it
 * threads  one at a time
 */
#ifndef AGENT_TRAIN_SAVER_H
#define AGENT_TRAIN_SAVER_H

#include "agent/train/checkpoint.h"
#include "agent/train/watchdog.h"

struct saver;

struct saver_options {
    const char *out;
    uint64_t attempt; /* of the run, as checkpoint.h has it */
    int64_t keep;
    struct comm *comm;    /* of all ranks; NULL: a single one */
    int host_ranks;       /* how many share this host's memory; 0: only this one */
    int64_t resumed_step; /* of the checkpoint that the run resumes; 0: none */
    const struct companions *companions;
    bool products;        /* keep their algorithms, too (products.h) */
    uint64_t least_bytes; /* of a rank's file of the model; 0: TENSOR_FILE_LEAST_BYTES */
    uint64_t patience_ms; /* how long saver_close() waits for other ranks */
};

MUST_USE int saver_open(const struct saver_options *o, struct model *m, struct optim *opt,
                        struct saver **out, struct err *e);
/* Bytes of host memory that the copy takes on the rank that writes most, with so many ranks. */
uint64_t saver_share_bytes(const struct layout *l, int ranks);
/* From now on the watchdog knows when a checkpoint is being written. It must outlive the saver. */
void saver_watch(struct saver *s, struct watchdog *w);
/* Call it when no rank has a checkpoint in progress; then it fails only when the device does. All
 * ranks call it together. */
MUST_USE int saver_save(struct saver *s, const struct train_state *state, struct err *e);

/* The state of this rank: to be summed over all ranks. */
struct saver_report {
    double busy;   /* 1: it is at work */
    double failed; /* 1: it could not write its files */
};

/* Waits up to wait_ms for this rank to finish. */
struct saver_report saver_tell(struct saver *s, uint64_t wait_ms);
/* Takes the sums over all ranks; true when a checkpoint is in progress on any rank. */
bool saver_settle(struct saver *s, const struct saver_report *sum);
/* A number that grows while a checkpoint is being written. */
uint64_t saver_progress(const struct saver *s);
/* After saver_settle() has returned false: the result of the last one on this rank. */
MUST_USE int saver_wait(struct saver *s, struct err *e);
void saver_close(struct saver **sp); /* NULL is fine; waits */

#endif
