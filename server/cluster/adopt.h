/* adopt.h - the rows of a mirror that stood alone become the first of a cluster.
 *
 *   CLAIM    cluster.json is created, with this node as adopted_by: other mirrors wait from now on
 *   UPLOAD   what the trees hold, while the mirror serves and publishes; again, until little is
 *            left
 *   HOLD     commits wait, and the rest is uploaded. If that takes too long: UPLOAD again
 *   FOUND    in the store: the position after entry 1 of the log, and the bytes of entry 1
 *            in the bucket: a checkpoint of all shared rows, then entry 1
 *            in the store: the bytes of entry 1 are removed
 *   JOIN     the sequencer follows the log from entry 2 on, and takes the commits that wait
 *
 * Before FOUND, a crash leaves a mirror that stands alone. Its next adopt_run() uploads nothing
 * that is there. From the first batch of FOUND on, only adopt_finish() may follow, before anything
 * is committed: so the rows stay those of the checkpoint. Other mirrors restore the checkpoint only
 * once entry 1 exists (adopt_check_founded()), and entry 1 cannot be applied without it.
 *
 * Rows in TABLE_META: "cluster adopting" from CLAIM to FOUND, "cluster founding" during FOUND.
 *
 * owns     nothing; borrows what the settings name
 * threads  adopt_run(): any but a loop's, one at a time; all block
 * errors   E_EXISTS: the bucket has a cluster already; E_CANCELLED: stopped, or on_progress() said
 *          so; E_BUSY: more was published than could be uploaded; E_CORRUPT: a version of a tree
 *          lacks content; those of bucket.h
 */
#ifndef SERVER_CLUSTER_ADOPT_H
#define SERVER_CLUSTER_ADOPT_H

#include "server/cluster/identity.h"
#include "server/cluster/sequencer.h"
#include "server/cluster/tree_content.h"

struct adopt_settings {
    struct store *store;
    struct bucket *bucket;
    struct tree_content *trees;
    struct cluster_sequencer *sequencer; /* alone */
    const char *node;                    /* hex */
    uint64_t boot;
    const atomic_bool *stop;
    /* Bytes of files; nonzero ends it, before FOUND. */
    int (*on_progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
};

struct adopted {
    uint64_t bytes;   /* of files, uploaded by this call */
    uint64_t held_ms; /* how long commits waited */
};

MUST_USE int adopt_run(const struct adopt_settings *set, struct adopted *out, struct err *e);
/* At the start of the process: ends a FOUND that was interrupted. Does nothing if there was
 * none. */
MUST_USE int adopt_finish(struct store *s, struct bucket *b, const atomic_bool *stop,
                          struct err *e);
/* Whether a mirror with rows of its own may stay alone over this bucket: it is empty, or claimed by
 * this node. E_EXISTS: it has a cluster. */
MUST_USE int adopt_may_begin(struct bucket *b, const char *node, struct err *e);
/* For another mirror, before it joins. E_AGAIN: the cluster's first mirror has claimed the bucket,
 * and its rows are not there yet. */
MUST_USE int adopt_check_founded(struct bucket *b, const struct identity *id, const char *node,
                                 struct err *e);
/* For a start without a cluster. E_CONFIG: the store's rows are those of a cluster. */
MUST_USE int adopt_check_alone(struct store *s, struct err *e);

/* Removes the places of items (nodes_only: of nodes) and, unless nodes_only, the rows of indexes,
 * collections and claims: from now on nothing is known to be in the bucket. */
MUST_USE int adopt_forget_places(struct store *s, bool nodes_only, struct err *e);

#endif
