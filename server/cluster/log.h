/* log.h - the log of committed batches, which decides what is true in a cluster. Its entries are
 * objects in a bucket, and the key of each is created once.
 *
 * A node applies all entries in their order. It commits a group of batches as one entry, by
 * creating the next key (a slot). The node that creates the key first has decided which entry comes
 * next. The other nodes apply that entry and check their own batches again. There is no lease: a
 * node that was paused finds its slot taken.
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
 * Start. A node restores the newest checkpoint (checkpoint.h) that is ahead of its rows, and then
 * applies the entries after it. It refuses a bucket that does not have the entry that it applied
 * last. Lists only say what may be read ahead; the first slot that a GET finds empty is the end.
 *
 * Trimmed entries. log_trim() deletes entries that a checkpoint covers. A slot that was trimmed is
 * empty again: a node that was paused could take it for the end of the log, and could even create
 * it. So each look at a slot has a gate. The log remembers a time, by the Date fields of the
 * bucket, at which no checkpoint covered the slot applied + 1: because the slot was empty, or
 * because a list had no such checkpoint. log_trim() deletes no entry before a checkpoint that
 * covers it has existed for its age_s. While a response is at most gate_s later than that time,
 * what it says about the slot is true. A later response is believed only after a look at the newest
 * checkpoint. A slot that a checkpoint covers is void: the checkpoint is restored, and its list of
 * last commits says whether our own entry was applied. gate_s must be at most half of age_s, which
 * leaves the rest for clocks of gateways that differ and for lists that lag.
 *
 * Damaged entries. An entry that is damaged in three reads is passed over by restoring a checkpoint
 * that covers it, if there is one: a node that has applied the entry can write it. If no node has
 * applied it, an operator can declare it void, with an object
 *
 *   void/0/<seq, 20 digits>   "<SHA-256 of the object's bytes> <the next entry's `before`>\n"
 *
 * of two times 64 hex digits. Nodes then apply an entry without batches and author in its place.
 * They read that key only for a damaged entry, and stop if it does not name the bytes that they
 * read. This is safe if and only if no node that goes on has applied the entry; otherwise the nodes
 * have different rows from then on. What the entry had is lost, even if a client was answered that
 * it succeeded. If the log ends with the damaged entry, the operator draws a random digest for
 * `before`. Should a node have the lost rows all the same, its next entry does not follow for the
 * others, and theirs does not follow for it: they stop instead of going on with different rows. If
 * there is a next entry, a node has applied the damaged one, and should write a checkpoint. Only if
 * all such nodes are lost may the entry be declared void, with the `before` of the next entry.
 *
 * owns     borrows the bucket
 * threads  one at a time; every call blocks. log_interrupt() may be called from any thread
 * errors   of a commit: E_AGAIN: the outcome is unknown, or the log cannot be written now (*open
 *          says which); E_CHANGED: a precondition failed; E_CORRUPT, E_UNSUPPORTED: the log has
 *          stopped; E_CANCELLED: log_interrupt() was called (*open says whether the outcome is
 *          unknown); the codes of bucket.h that a person has to fix: nothing was written
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
    /* The entry `seq`, which this log has just created, is in the log and will be applied next. Not
     * called for every entry: what became of one may be learned later. May be NULL. */
    void (*created)(void *arg, uint64_t seq);
    /* Applies the entry and records its position, durably and in one step. mine: it is the entry
     * that this struct cluster_log wrote last; its batches are those that admit() has admitted
     * since the last begin(). What this node wrote before its last start is not `mine`.
     * The author is recorded as the last commit of its node, for checkpoints; that of a void entry
     * is all zeros. E_CHANGED: a precondition does not hold, and nothing was applied.
     * E_NOTFOUND: the entry needs
     * what was deleted since then, so a checkpoint that covers it must be restored. */
    int (*apply)(void *arg, const struct log_entry *en, bool mine, struct err *e);
    /* Replaces all shared rows by those of a checkpoint: restore_begin(), the last commit of each
     * node, all rows in the order of table and key, restore_end(). Until restore_end() has returned
     * 0, the old rows and the old position stand, also after a crash. restore_end() then replaces
     * rows, last commits and position, in one step or so that the next start finishes it. After an
     * error of another function, restore_cancel() ends it instead. Our own commit may be among what
     * is restored: log_commit() then returns 0, and apply() is not called for it. */
    int (*restore_begin)(void *arg, struct err *e);
    int (*restore_commit)(void *arg, const struct log_entry_author *last, struct err *e);
    int (*restore_row)(void *arg, uint8_t table, struct slice key, struct slice value,
                       struct err *e);
    int (*restore_end)(void *arg, uint64_t seq, const struct digest *own, struct err *e);
    void (*restore_cancel)(void *arg);
};

enum { LOG_GATE_S = 3600, LOG_TRIM_AGE_S = 7 * 24 * 3600 };

struct log_settings {
    struct log_entry_author author; /* node and boot */
    uint64_t applied;               /* the last entry that is applied; 0: none */
    struct digest applied_own;
    uint64_t settle_ms; /* 0: 30 s */
    uint64_t gate_s;    /* 0: LOG_GATE_S */
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
/* For the start, before any other call: compares the bucket with what is applied, restores the
 * newest checkpoint if it is ahead, then applies the entries up to the end of the log, and reads
 * ahead. E_CORRUPT: the log has stopped, also because this is not the bucket of the applied
 * entries. */
MUST_USE int log_catch_up(struct cluster_log *l, struct err *e);
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
