/* recent.h - blocks that were just written to a stage and are still in memory, so that they are hashed without being read again.
 *
 * Blocks are kept in the order of the file. Where one is missing (it was written in one piece with others, or there was no
 * room), the hasher reads the file.
 *
 * threads  one at a time: recent_take() moves blocks to the job that hashes them
 */
#ifndef SERVER_SYNC_RECENT_H
#define SERVER_SYNC_RECENT_H

#include "common/base/buf.h"
#include "common/base/list.h"
#include "common/hash/digest.h"

struct recent {
    struct list blocks;
    uint64_t bytes;
};

void recent_init(struct recent *r);
void recent_put(struct recent *r, uint64_t at, struct buf *block); /* takes its memory */
/* The blocks that end at `upto` or before it. */
void recent_take(struct recent *from, uint64_t upto, struct recent *to);
/* Hashes on to `upto`: from memory what is here, the rest from the file. Drops all blocks. */
MUST_USE int recent_hash(struct recent *r, struct hasher *h, int fd, uint64_t upto, struct err *e);
void recent_drop(struct recent *r);

#endif
