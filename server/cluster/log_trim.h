/* log_trim.h - deletes what a cluster's bucket need not keep of the log: entries that a checkpoint
 * covers, and old checkpoints.
 *
 * The checkpoint that counts is the newest one that is not the newest of all, that has existed for
 * age_s, and that can be read; it is read completely before anything is deleted. Entries that it
 * covers, their void objects, older checkpoints, and parts without a head are deleted if they are
 * older than age_s. All ages are by the bucket's clock. So at least two checkpoints are kept, all
 * entries after the older of them, and everything younger than age_s. log.h says how a node that
 * was paused finds out. age_s must be at least twice the gate_s of every node.
 *
 * threads  any except a loop's; blocks
 * errors   the codes of bucket.h: some may be deleted, and the next call continues
 */
#ifndef SERVER_CLUSTER_LOG_TRIM_H
#define SERVER_CLUSTER_LOG_TRIM_H

#include "server/cluster/bucket.h"

struct log_trimmed {
    uint64_t covered; /* up to this entry; 0: no checkpoint counts yet */
    uint64_t entries; /* how many were deleted */
    uint64_t checkpoints;
    uint64_t parts;
};

/* age_s 0: LOG_TRIM_AGE_S. */
MUST_USE int log_trim(struct bucket *b, uint64_t age_s, struct log_trimmed *out, struct err *e);

#endif
