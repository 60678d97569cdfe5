/* sequencer.h - brings the batches of one mirror into the order of the cluster's log, and applies
 * what the other mirrors have committed.
 *
 * The store hands over every batch that writes rows which the cluster shares (store.h). Batches
 * that need something in the bucket first are prepared. One thread takes the batches that wait as
 * a group, has the store judge their preconditions, and appends one
 * entry to the log. It applies the entry in one write: the batches, with their steps on rows of
 * this node, and the position in the log. After a crash, the rows and the position agree, and the
 * next start applies the rest of the log. Without commits the thread polls the log.
 *
 * A batch whose precondition depends on another batch of the group waits for the next group. A
 * batch with a check of its own (batch.h) is the only one of its group. Its check runs on the
 * sequencer's thread when all entries before it are applied, each time that is so.
 *
 * A store with rows of its own, which are not the cluster's, can stay alone until they are in the
 * bucket (adopt.h):
 *
 *   ALONE ──hold──> HELD ──join──> FOLLOWING
 *     <───release───     <───hold───
 *                        ───release──>
 *                   HELD ──part──> HELD, and released to ALONE
 *
 * ALONE: the store commits by itself. HELD: batches wait. FOLLOWING: the log.
 *
 * If the bucket does not say what became of an entry, the batches of that entry are kept until it
 * does, and their callers get E_AGAIN. Until then every other batch is refused at once.
 *
 * owns     borrows the store and the bucket; takes a batch from its wait and frees it. Start it
 *          before anything commits, and free it after store_close(): a mirror of a cluster must
 *          never write a shared row by itself
 * threads  any but for start, stop and free; each commit waits for its own answer
 * errors   a commit's: E_CHANGED: a precondition failed; E_AGAIN: the outcome is unknown, or the
 *          log cannot be written now; E_TOOBIG: more than an entry holds; E_CANCELLED: the mirror
 *          is shutting down; E_CORRUPT, E_UNSUPPORTED: the log has stopped
 */
#ifndef SERVER_CLUSTER_SEQUENCER_H
#define SERVER_CLUSTER_SEQUENCER_H

#include <stdatomic.h>

#include "server/cluster/log.h"
#include "server/store/store.h"

struct cluster_sequencer;

struct sequencer_ops {
    /* Whether the bucket may be used: called until it returns 0, before anything is read or
     * written. */
    int (*check)(void *arg, struct err *e);
    /* Whether prepare() must see this batch. */
    bool (*must_prepare)(const struct batch *b);
    /* Makes a batch of this mirror ready for the log, and may add steps to it. Runs on one of
     * SEQUENCER_PREPARERS threads, and may take long: other batches overtake this one. */
    int (*prepare)(void *arg, struct batch *b, struct err *e);
    /* Whether a prepared batch, one of whose preconditions failed, must be prepared again instead
     * of failing. It has the steps that prepare() has added. May be NULL. */
    bool (*is_outdated)(void *arg, const struct batch *b);
    /* Other mirrors' rows are about to be applied. What is added to `own` is written with them.
     * After an error the entry is tried again by the next poll. E_NOTFOUND: what it needs has been
     * deleted since; a checkpoint that covers the entry is restored instead, once there is one. */
    int (*before_apply)(void *arg, const struct batch *b, struct batch *own, struct err *e);
    /* The shared rows of these batches have been put and deleted, of this mirror or of another. */
    void (*after_apply)(void *arg, const struct batch *const *b, size_t n);
    /* Entries of this mirror, up to seq, are in the log. Their callers have their answers when this
     * has returned and the entries are applied here, which goes on at the same time. Runs on a
     * thread of its own, once for all entries that have come in the meantime. */
    void (*announce)(void *arg, uint64_t seq);
};

enum { SEQUENCER_PREPARERS = 2 };

struct sequencer_settings {
    uint8_t node[LOG_ENTRY_NODE_BYTES];
    uint64_t boot;
    uint64_t poll_ms;                /* 0: 1 s */
    uint64_t settle_ms;              /* 0: as log.h */
    bool may_be_alone;               /* a store with rows of its own is not refused */
    const atomic_bool *gives_up;     /* is set to end sequencer_start() early; may be NULL */
    const struct sequencer_ops *ops; /* or NULL */
    void *arg;
};

/* Whose the shared rows of a store are. */
enum sequencer_rows { ROWS_NONE, ROWS_OWN, ROWS_OF_CLUSTER };
MUST_USE int sequencer_look(struct store *s, enum sequencer_rows *out, struct err *e);

/* The last entry whose rows the store has, at least: unlike sequencer_status.applied, which waits
 * for the end of a poll, it is never older than a row that was read before. E_NOTFOUND: the rows
 * are no cluster's. */
MUST_USE int sequencer_position(struct store *s, uint64_t *seq, struct err *e);

/* Applies the whole log, then starts the threads. A store that has a position starts also when the
 * bucket does not answer: it can be read, and goes on when the bucket is back. E_EXISTS: the store
 * has shared rows and no position, so they are not the cluster's; with may_be_alone, it is ALONE.
 */
MUST_USE int sequencer_start(struct store *s, struct bucket *b,
                             const struct sequencer_settings *set, struct cluster_sequencer **out,
                             struct err *e);
/* Ends the threads. Batches that wait or come later get E_CANCELLED. A prepare() that is under way
 * ends first: its owner interrupts it. */
void sequencer_stop(struct cluster_sequencer *q);
void sequencer_free(struct cluster_sequencer **qp); /* after sequencer_stop() and store_close() */

/* These five are called one at a time. From now on batches wait. Returns when those before are
 * done. E_TIMEOUT: they were not within wait_ms, for instance because of an upload, and it is back
 * where it was before. */
MUST_USE int sequencer_hold(struct cluster_sequencer *q, uint64_t wait_ms, struct err *e);
void sequencer_release(struct cluster_sequencer *q); /* back to where it was before */
/* HELD, with a position, over a bucket that the caller has checked: follows the log from there, and
 * the batches that wait go there. After an error it is HELD still, and batches are refused until
 * it is called again or released. */
MUST_USE int sequencer_join(struct cluster_sequencer *q, struct err *e);
/* The same, again and again: nothing can be changed until then. E_CANCELLED: *stop was set. */
MUST_USE int sequencer_join_until(struct cluster_sequencer *q, const atomic_bool *stop,
                                  struct err *e);
/* HELD, of one that follows the log: it does not any more, and the store does not change. */
void sequencer_part(struct cluster_sequencer *q);

/* For the first mirror of a cluster, with rows of its own: entry 1 of the log. It requires one of
 * these rows, so nobody can apply it without them. `b` gets the position after it. E_NOTFOUND:
 * there are no rows. */
MUST_USE int sequencer_first_entry(struct store *s, const uint8_t node[LOG_ENTRY_NODE_BYTES],
                                   uint64_t boot, struct buf *entry, struct batch *b,
                                   struct err *e);
/* `b` gets the removal of the position, so that the rows are the store's own. */
MUST_USE int sequencer_forget(struct store *s, struct batch *b, struct err *e);
/* The log has an entry of this number: polls now if it is not applied yet, and waits for it up to
 * wait_ms. False: it is not applied. */
MUST_USE bool sequencer_poke(struct cluster_sequencer *q, uint64_t seq, uint64_t wait_ms);
/* Something is not here that another mirror may just have published: reads the log now, and waits
 * for that up to wait_ms. True: entries were applied meanwhile. Not more often than that a second,
 * and not while the bucket is away: then it is false at once. Blocks. */
enum { SEQUENCER_CATCH_UPS_PER_S = 10 };
MUST_USE bool sequencer_catch_up(struct cluster_sequencer *q, uint64_t wait_ms);

/* Writes a checkpoint of the store's shared rows; *seq: as of which entry. Any thread, also while
 * the sequencer commits. nonce: random. */
MUST_USE int sequencer_write_checkpoint(struct store *s, struct bucket *b, uint64_t nonce,
                                        uint64_t *seq, struct err *e);

/* Refuses all batches with *why, also those that wait, until it is called with NULL. */
void sequencer_refuse(struct cluster_sequencer *q, const struct err *why);

struct sequencer_status {
    uint64_t applied;      /* entries of the log */
    uint64_t confirmed_ms; /* clock_boot_ms(): the log had no further entry then */
    size_t waiting;        /* batches without an answer */
    bool in_doubt;         /* the outcome of an entry is unknown */
    bool stopped;          /* for good, see why */
    uint64_t failures;     /* polls and commits in a row */
    uint64_t since_unix_s; /* when the first of them failed; 0: none has */
    struct err why;        /* of the last one, or why the log has stopped; code 0: neither */
};
void sequencer_status(struct cluster_sequencer *q, struct sequencer_status *out);
/* As status.confirmed_ms, without a lock: for loops. */
uint64_t sequencer_confirmed_ms(const struct cluster_sequencer *q);

#endif
