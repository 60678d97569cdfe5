/* leave.h - a mirror of a cluster stands alone again, with all that its trees hold on its own disk.
 *
 *   FETCH   what the trees hold and is not here, while the mirror serves; nothing that the trees
 *           hold is evicted from now on
 *   HOLD    commits wait, the log is not followed any more, and the rest is fetched
 *   PART    one batch: the rows are the store's own
 *   FORGET  the places and the indexes are removed
 *
 * A crash before PART leaves a mirror of the cluster, and after it one that stands alone;
 * leave_finish() ends FORGET. The other mirrors notice nothing: the bucket does not change.
 *
 * owns     nothing; borrows what the settings name
 * threads  any but a loop's, one at a time; all block. It starts LEAVE_FETCHERS threads
 * errors   E_NOSPACE: what the trees hold does not fit; E_CANCELLED; E_BUSY: the others publish
 *          more than can be fetched; E_AGAIN: the log cannot be followed now; those of
 *          tree_content_fetch()
 */
#ifndef SERVER_CLUSTER_LEAVE_H
#define SERVER_CLUSTER_LEAVE_H

#include "server/cluster/sequencer.h"
#include "server/cluster/tree_content.h"

enum { LEAVE_FETCHERS = 4 };

struct leave_settings {
    struct store *store;
    struct tree_content *trees;
    struct cluster_sequencer *sequencer; /* that follows the log */
    struct blob_source *source;
    const atomic_bool *stop;
    int (*on_progress)(void *arg, uint64_t done, uint64_t total); /* of bytes; nonzero ends it */
    void (*on_parted)(void *arg); /* the mirror stands alone from now on; commits wait still */
    void *arg;
};

struct left {
    uint64_t bytes; /* fetched */
    uint64_t held_ms;
};

MUST_USE int leave_run(const struct leave_settings *set, struct left *out, struct err *e);
/* Ends a FORGET that was interrupted. Does nothing if there was none. */
MUST_USE int leave_finish(struct store *s, struct err *e);

/* Without the bucket: PART and FORGET at once. missing: what the trees hold and is not here; unless
 * force, that is E_CORRUPT and nothing changes. E_NOTFOUND: the store belongs to no cluster. */
MUST_USE int leave_offline(struct store *s, bool force, uint64_t *missing, uint64_t *missing_bytes,
                           struct err *e);

#endif
