/* sequencer.h - brings the batches of one mirror into the order of the cluster's log, and applies
 * what the other mirrors have committed.
 *
 * The store hands over every batch that writes rows which the cluster shares (store.h). The
 * sequencer's thread takes those that wait as one group, checks their preconditions, appends one
 * entry to the log, and applies it: the batches as they are, with their steps on rows of this node,
 * together with the position in the log. So a crash at any point leaves rows and position equal,
 * and the rest of the log is applied at the next start. Entries of others are applied without rows
 * of theirs alone. Without commits, the log is polled.
 *
 * A batch may have a precondition or a holder whose blob is evicted between its check and its
 * application. The entry counts by then, so its shared rows are applied without the node's own.
 *
 * owns     borrows the store and the bucket; sequencer_stop() ends the thread, and what waits then
 *          fails
 * threads  sequencer_poke() and the getters: any
 * errors   as log.h; a commit's are its caller's
 */
#ifndef SERVER_CLUSTER_SEQUENCER_H
#define SERVER_CLUSTER_SEQUENCER_H

#include "server/cluster/log.h"
#include "server/store/store.h"

struct cluster_sequencer;

struct sequencer_settings {
    uint8_t node[LOG_ENTRY_NODE_BYTES];
    uint64_t boot;
    uint64_t poll_ms;   /* 0: 1 s */
    uint64_t settle_ms; /* 0: as log.h */
};

/* Applies all that the log has, then starts. */
MUST_USE int sequencer_start(struct store *s, struct bucket *b,
                             const struct sequencer_settings *set, struct cluster_sequencer **out,
                             struct err *e);
void sequencer_stop(struct cluster_sequencer **qp); /* NULL is fine */
void sequencer_poke(struct cluster_sequencer *q);   /* there is something new: poll now */

struct sequencer_status {
    uint64_t applied;      /* entries of the log */
    uint64_t confirmed_ms; /* monotonic: when this was last known to be the log's end */
    bool stopped;          /* for good: see why */
    struct err why; /* of that, or of the last poll or commit that failed; code 0: none did */
};
void sequencer_status(struct cluster_sequencer *q, struct sequencer_status *out);

#endif
