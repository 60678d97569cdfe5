/* collect.h - deletes from a cluster's bucket the content that no version of any tree names, by
 * entries of the log.
 *
 *   mark       what the versions of all trees reach, as of one position of the log
 *   condemn    the indexes of what is dead are written anew without it (rewrite.h). One entry ends
 *              the old indexes, and with them their places, on every mirror. It is admitted only
 *              after every version that was published since the mark has been marked, too; if one
 *              of them needs what was left out, the run begins again
 *   delete     once every mirror that is alive has applied the entry, and delay_s have passed since
 *              this mirror has seen it, and a checkpoint covers it; then an entry says so
 *   orphans    an entry says "orphans before T", and what was uploaded before T and is not named
 *              after that entry is deleted
 *
 * Why nothing that is needed can be lost. A publish relies on places that counted when it was
 * prepared, and requires that no entry has ended any since (generation.h); else it is prepared
 * again, and uploads under new keys what has lost its place. What it uploads it may name only if
 * its uploads began after T. Keys are never written twice, so a deletion may arrive at any time.
 * No clock of a mirror and no lock counts: two collections at a time do double work, of which one
 * half is refused by its preconditions. A mirror that slept meets the same entries in its slot.
 *
 * The delay is for readers alone, and for uploads that were begun because the cluster had a file.
 *
 * The first of the mirrors that are alive runs collections, every every_s, and deletes. Others run
 * one when somebody asks.
 *
 * owns     a thread; borrows the store and the bucket
 * threads  any; collect_run() blocks. collect_note() on the sequencer's
 * errors   of collect_run(): E_BUSY: one is running; E_CORRUPT: a tree or an index cannot be read,
 *          so what is reached is unknown and nothing was deleted; the codes of bucket.h and of a
 *          commit
 */
#ifndef SERVER_CLUSTER_COLLECT_H
#define SERVER_CLUSTER_COLLECT_H

#include "server/cluster/bucket.h"
#include "server/cluster/generation.h"
#include "server/store/batch.h"

struct collect_ops {
    bool (*is_first)(void *arg);
    bool (*is_alive)(void *arg, const char *node);
    /* The last entry whose rows this mirror's store has, or a later one; never 0. */
    int (*applied)(void *arg, uint64_t *seq, struct err *e);
    /* Whether all mirrors that are alive have applied that entry. */
    bool (*all_applied)(void *arg, uint64_t seq);
    /* Afterwards a checkpoint covers the entry. */
    int (*checkpoint)(void *arg, uint64_t seq, struct err *e);
    /* Removes rows of places that have ended, on this mirror. */
    int (*sweep_places)(void *arg, struct err *e);
    bool (*reads_back)(void *arg);
};

struct collect_settings {
    struct store *store;
    struct bucket *bucket;
    const struct bucket *clock; /* the same bucket, asked often: the Date of its responses counts */
    char node[33];
    uint32_t every_s; /* 0: only when somebody asks */
    uint32_t delay_s;
    uint32_t orphan_age_s;
    const struct collect_ops *ops;
    void *arg;
};

struct collect;
struct collect *collect_open(const struct collect_settings *set);
void collect_interrupt(struct collect *c); /* the bucket must be interrupted, too */
/* After sequencer_stop() and collect_interrupt(): no run is under way afterwards, and none begins.
 * A status can be asked for until collect_close(). NULL is fine. */
void collect_stop(struct collect *c);
void collect_close(struct collect **cp); /* after collect_stop(); NULL is fine */
/* The shared rows of these batches were applied. */
void collect_note(struct collect *c, const struct batch *const *b, size_t n);

struct collect_report {
    uint64_t indexes, objects, bytes;    /* in the bucket, that the log names */
    uint64_t condemned, condemned_bytes; /* of these, with those that were copied */
    uint64_t copied_bytes;
    uint64_t orphans, orphan_bytes;
};

/* what: "reading indexes". total: 0: unknown. Nonzero ends the run, which is then E_CANCELLED. */
typedef int collect_progress(void *arg, const char *what, uint64_t done, uint64_t total);
/* dry: only counts. */
MUST_USE int collect_run(struct collect *c, bool dry, collect_progress *progress, void *arg,
                         struct collect_report *out, struct err *e);

struct collect_status {
    bool known; /* last was filled */
    struct collect_run last;
    uint64_t waiting, waiting_bytes; /* condemned, and not deleted yet */
    uint64_t deleted, deleted_bytes; /* by this mirror since its start */
    uint64_t failures;               /* of what this mirror does by itself, in a row */
    uint64_t since_unix_s;           /* when the first of them failed */
    struct err why;                  /* of the last one */
};
void collect_status(struct collect *c, struct collect_status *out);

#endif
