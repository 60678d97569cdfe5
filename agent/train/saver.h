/* saver.h - writes checkpoints while the model learns on; every rank writes its share.
 *
 * saver_save() copies what this rank is to write into its host's memory and returns; a thread
 * writes it. Of the moments these are the rank's own slices. The model is gathered group by group,
 * and whole tensors are kept by the rank that writes them: about 12 bytes a parameter, divided by
 * the number of ranks. Where the host has no room for a copy, saver_save() writes from the device's
 * memory itself, and the model waits.
 *
 *     IDLE --saver_save()--> WRITING --this rank's files are written, or could not be--> WRITTEN
 *     WRITTEN --saver_settle(): all ranks are WRITTEN--> first rank: ENDING, others: IDLE
 *     ENDING --committed, or dropped where a rank could not write--> IDLE
 *
 * The ranks tell each other how far they are between steps, by sums that the caller makes: no
 * thread but the main one speaks to other ranks. A rank alone settles by itself. One checkpoint is
 * under way at a time.
 *
 * One that cannot be written leaves nothing, is told as a warning, and does not stop the run: the
 * next one is tried in its turn. saver_wait() gives the last one's error, for the end, where there
 * is no next. When a rank's error ends the run (watchdog.h), or saver_close() comes first, the
 * first rank still commits what all have written.
 *
 * The first rank removes what crashes left behind and what is older than the newest `keep`, before
 * and after.
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
    struct comm *comm;    /* of all ranks; NULL: one alone */
    int host_ranks;       /* how many share this host's memory; 0: this one alone */
    int64_t resumed_step; /* of the checkpoint that the run goes on from; 0: of none */
    const struct companions *companions;
    bool products;        /* keep their algorithms, too (products.h) */
    uint64_t least_bytes; /* of a rank's file of the model; 0: TENSOR_FILE_LEAST_BYTES */
    uint64_t patience_ms; /* saver_close() waits so long for other ranks */
};

MUST_USE int saver_open(const struct saver_options *o, struct model *m, struct optim *opt,
                        struct saver **out, struct err *e);
/* Bytes of host memory that the copy takes on the rank that writes most, of so many. */
uint64_t saver_share_bytes(const struct layout *l, int ranks);
/* From now on the watchdog knows when a checkpoint is being written. It must outlive the saver. */
void saver_watch(struct saver *s, struct watchdog *w);
/* When nothing is under way on any rank; then fails only when the device does. All ranks call it
 * together. */
MUST_USE int saver_save(struct saver *s, const struct train_state *state, struct err *e);

/* How far this rank is: to be summed over all ranks. */
struct saver_report {
    double busy;   /* 1: it is at work */
    double failed; /* 1: it could not write its files */
};

/* Waits up to wait_ms for this rank to be done. */
struct saver_report saver_tell(struct saver *s, uint64_t wait_ms);
/* With the sums over all ranks; true when something is still under way, here or elsewhere. */
bool saver_settle(struct saver *s, const struct saver_report *sum);
/* A number that grows while the one under way is being written. */
uint64_t saver_progress(const struct saver *s);
/* After saver_settle() has said that nothing is under way: how the last one went, as far as this
 * rank is concerned. */
MUST_USE int saver_wait(struct saver *s, struct err *e);
void saver_close(struct saver **sp); /* NULL is fine; waits */

#endif
