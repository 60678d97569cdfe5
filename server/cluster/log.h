/* log.h - the log of committed batches, which decides what is true in a cluster. Its entries are
 * objects in a bucket, and the key of each is created once.
 *
 * A node applies all entries in their order. It commits a group of batches as one entry, by
 * creating the next key (a slot). The node that creates the key first has decided which entry comes
 * next. The other nodes apply that entry and check their own batches again. There is no lease and
 * no clock: a node that was paused finds its slot taken.
 *
 * The life of a commit:
 *
 *   CHECK    the preconditions of each batch against the rows of all applied entries. A batch that
 *            fails gets E_CHANGED and is left out; the rest of the group goes on. The caller forms
 *            groups in which no batch requires what another one changes.
 *   CREATE   the entry in the next slot. Success: APPLY. If the slot is taken, or the response does
 *            not say what happened: SETTLE.
 *   SETTLE   read the slot. If it has our bytes: APPLY. If it has another entry: apply that entry,
 *            then CHECK again. If it is empty: the request may still arrive, so CREATE again with
 *            the same bytes. After settle_ms the caller learns that the outcome is unknown. The
 *            slot then stays open, and the next call settles it before it does anything else.
 *   APPLY    by ops->apply(). Every node checks the preconditions again there. A precondition that
 *            fails shows that the bucket let two entries into one slot. The log then stops: what is
 *            applied can still be read, but commits are refused.
 *
 * owns     borrows the bucket
 * threads  one at a time; every call blocks. log_interrupt() may be called from any thread
 * errors   of a commit: E_AGAIN: the outcome is unknown, or the log cannot be written now (*open
 *          says which); E_CHANGED: a precondition failed; E_CORRUPT: the log has stopped;
 *          E_CANCELLED: log_interrupt() was called (*open says whether the outcome is unknown);
 *          the codes of bucket.h that a person has to fix: nothing was written
 * source   docs/decisions/0025
 */
#ifndef SERVER_CLUSTER_LOG_H
#define SERVER_CLUSTER_LOG_H

#include "server/cluster/bucket.h"
#include "server/cluster/log_entry.h"

struct cluster_log;

struct log_ops {
    /* A group begins, or begins again: forgets what admit() has admitted so far. */
    void (*begin)(void *arg);
    /* Checks the preconditions of this batch against the rows of all applied entries. 0: the batch
     * is admitted. E_CHANGED: a precondition fails. */
    int (*admit)(void *arg, struct slice batch, struct err *e);
    /* Applies the entry and records its position, durably and in one step. mine: it is the entry
     * that this struct cluster_log wrote last; its batches are those that admit() has admitted
     * since the last begin(). What this node wrote before its last start is not `mine`.
     * E_CHANGED: a precondition does not hold, and nothing was applied. */
    int (*apply)(void *arg, const struct log_entry *en, bool mine, struct err *e);
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

/* Commits the group, which has at most LOG_ENTRY_BATCHES_MAX batches. Each batch has its own
 * result, rc. The call returns the result of the entry, or 0 if every batch failed its
 * preconditions.
 * *open: the entry may have been written, or may still be written. */
MUST_USE int log_commit(struct cluster_log *l, struct log_batch *batch, size_t n, bool *open,
                        struct err *e);
/* Settles an open slot, then applies the entries of other nodes up to the end of the log. */
MUST_USE int log_poll(struct cluster_log *l, struct err *e);
/* The call under way, and every later one, returns E_CANCELLED soon. A request that is under way
 * is not ended by this; bucket_interrupt() ends it. */
void log_interrupt(struct cluster_log *l);
uint64_t log_applied(const struct cluster_log *l);
/* Whether the log has stopped; *why then gets the reason. */
bool log_has_stopped(const struct cluster_log *l, struct err *why);

enum { LOG_KEY_ROOM = 32 };
void log_key(uint64_t seq, char key[LOG_KEY_ROOM]); /* "log/0/00000000000000000042" */

#endif
