/* commit.h - the one thread that writes rows.
 *
 * It takes what has queued up, checks each batch's preconditions against the database and the
 * batches before it in the group, writes the group at once (synced when one of them asks), removes
 * files that no row names any more, and answers. A batch that fails a precondition fails alone; a
 * write that fails, fails its group.
 *
 * After a failed write nobody knows what the log holds, until a later write succeeds (RocksDB then
 * has flushed and begun a new log). Until then the seals of the failed group stay entered (seal.h),
 * so that their files stay.
 */
#ifndef SERVER_STORE_COMMIT_H
#define SERVER_STORE_COMMIT_H

#include "server/store/batch.h"

/* The counters of sealed blobs are a row that every commit touching blobs rewrites in the same
 * batch: they are exact after any crash. */
struct counts {
    uint64_t used_bytes;
    uint64_t small_bytes;
    uint64_t blobs;
};

struct committer;
struct committer *committer_open(struct store *s, const struct counts *counts);
void committer_close(struct committer **cp); /* drains the queue */
/* From a check on the commit thread: corrects the counters, with the batch that is being
 * admitted. */
void committer_adjust(struct store *s, const struct counts *add, const struct counts *sub);

enum { COUNTS_BYTES = 24 };
MUST_USE int counts_decode(struct slice bytes, struct counts *out, struct err *e);
void counts_add(struct counts *c, uint64_t size_bytes);
/* The counters of TABLE_META; E_NOTFOUND in a new store. */
MUST_USE int counts_load(struct store *s, struct counts *out, struct err *e);

#endif
