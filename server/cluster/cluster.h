/* cluster.h - this mirror as one of several over one bucket (docs/cluster.md).
 *
 *   bucket (bucket.h)      requests to S3; probed before anything else (probe.h)
 *   sequencer              shared rows, in the order of the log (log.h)
 *   tree_content           content of trees: into the bucket before its names are in the log, and
 *                          from there to this node
 *
 * The store's part: its sequencer takes batches with shared rows, and its source of blobs that are
 * elsewhere is tree_content_fetch().
 *
 * owns     borrows the store: cluster_open() right after store_open(), cluster_stop() before and
 *          cluster_close() after store_close()
 * threads  any but for open, stop and close
 * errors   of cluster_open(): E_UNSUPPORTED: the bucket breaks a promise; E_EXISTS: the store has
 *          rows that are not the cluster's; E_CONFIG: the store belongs to another cluster; those
 *          of bucket.h and log.h
 */
#ifndef SERVER_CLUSTER_CLUSTER_H
#define SERVER_CLUSTER_CLUSTER_H

#include "server/cache/lookup.h"
#include "server/cluster/bucket.h"
#include "server/store/store.h"

struct cluster_settings {
    struct bucket_settings bucket;
    const char *address; /* of this mirror, for the others; NULL: they cannot reach it */
    const char *secret;  /* the same for all; NULL: they do not talk to each other */
    uint32_t poll_ms;
    uint32_t stale_after_ms;
    uint32_t checkpoint_entries;
};

struct cluster;

MUST_USE int cluster_open(const struct cluster_settings *set, struct store *s, struct cluster **out,
                          struct err *e);
/* on_row() is called for each row that another mirror has changed, once it is applied, on a thread
 * of the cluster. Earlier changes are not reported. */
void cluster_on_row(struct cluster *c, void (*on_row)(void *arg, enum table t, struct slice key),
                    void *arg);
/* What makes room in the store for content of the bucket. */
void cluster_on_full(struct cluster *c, int (*make_room)(void *arg, uint64_t n), void *arg);
void cluster_stop(struct cluster *c); /* NULL is fine */
void cluster_close(struct cluster **cp);

/* For a large blob that lies in the bucket and not in the store: fills a lookup by which the cache
 * streams it while it arrives. Texts are in the arena. False: blob_open() is quick, or the blob is
 * nowhere. Reads rows: blocks. */
MUST_USE bool cluster_lookup(struct cluster *c, const struct digest *d, struct arena *a,
                             struct lookup *out);

/* Whether another mirror of this cluster says that the log has this entry (poke.h). */
MUST_USE bool cluster_signed_poke(struct cluster *c, uint64_t seq, struct slice signature);
/* Waits until the entry is applied, up to 250 ms: blocks. False: not yet. */
MUST_USE bool cluster_poke(struct cluster *c, uint64_t seq);

struct cluster_status {
    const char *place; /* of the bucket */
    char node[33];     /* hex */
    uint64_t applied;  /* entries of the log */
    uint64_t lag_ms;   /* since the log was last known to have no further entry */
    bool stopped;      /* for good, see why */
    struct err why;    /* of the last poll or commit, if it failed; code 0: it did not */
};
void cluster_status(struct cluster *c, struct cluster_status *out);
/* Whether rights may be judged: the log was confirmed within stale_after. */
bool cluster_is_fresh(struct cluster *c);

#endif
