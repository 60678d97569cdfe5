/* unhashed.h - blocks that were just written to a stage and are still in memory, so that they are hashed without being read again.
 *
 * Blocks are kept in the order of the file. Where one is missing (it was written in one piece with others, or there was no
 * room), the hasher reads the file.
 *
 * threads  one at a time: unhashed_take() moves blocks to the job that hashes them
 */
#ifndef SERVER_STORE_UNHASHED_H
#define SERVER_STORE_UNHASHED_H

#include "common/base/buf.h"
#include "common/base/list.h"
#include "common/hash/digest.h"

struct unhashed {
    struct list blocks;
    uint64_t bytes;
};

void unhashed_init(struct unhashed *r);
void unhashed_put(struct unhashed *r, uint64_t at, struct buf *block); /* takes its memory */
/* The blocks that end at `upto` or before it. */
void unhashed_take(struct unhashed *from, uint64_t upto, struct unhashed *to);
/* Hashes on to `upto`: from memory what is here, the rest from the file. Drops all blocks. */
MUST_USE int unhashed_hash(struct unhashed *r, struct hasher *h, int fd, uint64_t upto,
                           struct err *e);
void unhashed_drop(struct unhashed *r);

#endif
