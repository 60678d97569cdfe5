/* commit.h - the one thread that writes rows.
 *
 * It takes the queued batches, checks each batch's preconditions against the database and against
 * the earlier batches of the group, writes the group in one go (synced when one of them requires
 * it), removes files that no row names any more, and reports to the callers. A batch that fails a
 * precondition fails alone; a failed write fails its whole group.
 *
 * After a failed write the content of the log is unknown until a later write succeeds (RocksDB has
 * then flushed and begun a new log). Until then the seals of the failed group stay entered
 * (seal.h), so that their files stay.
 *
 * owns     struct committer, from committer_open() to committer_close()
 * threads  any; committer_adjust() runs on the commit thread
 * errors   E_CHANGED: a precondition did not hold
 */
#ifndef SERVER_STORE_COMMIT_H
#define SERVER_STORE_COMMIT_H

#include "server/store/batch.h"

/* The counters of sealed blobs. Every commit that touches blobs rewrites their row in the same
 * batch, so they are exact after any crash. */
struct counts {
    uint64_t used_bytes;
    uint64_t small_bytes;
    uint64_t blobs;
};

struct committer;
struct committer *committer_open(struct store *s, const struct counts *counts);
void committer_close(struct committer **cp); /* drains the queue */
/* Corrects the counters together with the batch that is being checked. To be called from a check on
 * the commit thread. */
void committer_adjust(struct store *s, const struct counts *add, const struct counts *sub);

enum { COUNTS_BYTES = 24 };
MUST_USE int counts_decode(struct slice bytes, struct counts *out, struct err *e);
void counts_add(struct counts *c, uint64_t size_bytes);
/* Loads the counters from TABLE_META; E_NOTFOUND in a new store. */
MUST_USE int counts_load(struct store *s, struct counts *out, struct err *e);

#endif
