/* log.h - the log of committed batches, which is the truth of a cluster: entries in a bucket, each
 * key created once.
 *
 * A node applies all entries in their order. It commits by creating the next key. Whoever creates
 * it first has decided what comes next, and the others apply that and check their own batches
 * again. There is no lease and no clock: a node that was paused finds its slot taken.
 *
 * The life of a commit:
 *
 *   CHECK    each batch's preconditions, against what is applied and the batches before it in the
 *            group. Those that fail are E_CHANGED, alone.
 *   CREATE   the entry at the next slot. Success: APPLY. A slot that is taken, or a response that
 *            does not say what happened: SETTLE.
 *   SETTLE   read the slot. Our bytes: APPLY. Another entry: apply it, then CHECK again. Nothing
 *            there: the request may still arrive, so CREATE again with the same bytes. After
 *            settle_ms the slot stays open and the caller learns that the outcome is unknown;
 *            nothing else is done before the slot is settled.
 *   APPLY    through ops->apply(). Preconditions are checked there again, by every node: one that
 *            fails shows that the bucket let two entries into one slot. The log then stops: reads
 *            go on, commits are refused.
 *
 * owns     borrows the bucket
 * threads  one at a time; every call blocks
 * errors   of a commit: E_AGAIN: the outcome is unknown, or the log cannot be written now (*open
 *          tells which); E_CHANGED; E_CORRUPT: the log has stopped; those of bucket.h that a person
 *          has to fix, when nothing was written
 * source   docs/decisions/0025
 */
#ifndef SERVER_CLUSTER_LOG_H
#define SERVER_CLUSTER_LOG_H

#include "server/cluster/bucket.h"
#include "server/cluster/log_entry.h"

struct cluster_log;

struct log_ops {
    /* A group begins: forget the batches that admit() took before. */
    void (*begin)(void *arg);
    /* Do the preconditions of this batch hold, after all that is applied and the batches that were
     * admitted since begin()? 0 or E_CHANGED. */
    int (*admit)(void *arg, struct slice batch, struct err *e);
    /* Applies the entry, durably and as a whole, with its position. E_CHANGED: a precondition does
     * not hold, and nothing was applied. */
    int (*apply)(void *arg, const struct log_entry *en, struct err *e);
};

struct log_settings {
    struct log_entry_author author; /* node and boot */
    uint64_t applied;               /* the last entry that is applied; 0: none */
    struct digest applied_own;
    uint64_t settle_ms; /* 0: 30 s */
    const struct log_ops *ops;
    void *arg;
};

struct cluster_log *log_open(struct bucket *b, const struct log_settings *set);
void log_close(struct cluster_log **lp); /* an open slot stays open: the next start finds it */

struct log_batch {
    struct slice steps; /* as log_entry_step_write() writes them */
    int rc;             /* of this batch */
    struct err why;
};

/* Commits the group: at most LOG_ENTRY_BATCHES_MAX batches. Each has its own result. The result of
 * the call is that of the entry; it is 0, too, when every batch failed its preconditions.
 * *open: the entry may have been written, or may be yet. */
MUST_USE int log_commit(struct cluster_log *l, struct log_batch *batch, size_t n, bool *open,
                        struct err *e);
/* Applies what others have written, until the end of the log; first settles an open slot. */
MUST_USE int log_poll(struct cluster_log *l, struct err *e);
uint64_t log_applied(const struct cluster_log *l);
/* Why the log has stopped; false: it has not. */
bool log_has_stopped(const struct cluster_log *l, struct err *why);

enum { LOG_KEY_ROOM = 32 };
void log_key(uint64_t seq, char key[LOG_KEY_ROOM]); /* "log/0/00000000000000000042" */

#endif
