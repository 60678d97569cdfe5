/* head.h - the rows of heads and snapshots, for collection and the store's fsck. */
#ifndef SERVER_STORE_HEAD_H
#define SERVER_STORE_HEAD_H

#include "server/store/tree.h"

struct head {
    uint64_t live_seq;
    uint64_t newest_seq; /* numbers are never used again */
    bool hold;           /* rolled back: a sync must not publish over it by itself */
};

MUST_USE int head_decode(struct slice value, struct head *out, struct err *e);
MUST_USE int snap_decode(struct slice value, uint64_t seq, struct snap *out, struct err *e);
/* repo NUL name NUL ~seq: the newest first */
void snap_key(struct buf *out, struct slice repo, struct slice name, uint64_t seq);
MUST_USE bool snap_key_parse(struct slice key, struct slice *tree, uint64_t *seq);

#endif
