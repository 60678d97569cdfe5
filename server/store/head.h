/* head.h - the rows of heads and snapshots, for this folder's own files. */
#ifndef SERVER_STORE_HEAD_H
#define SERVER_STORE_HEAD_H

#include "server/store/tree.h"

struct head {
    uint64_t live_seq;
    uint64_t newest_seq; /* numbers are never used again */
    bool hold;           /* rolled back: a sync must not publish over it by itself */
    /* changes with every label, tag and branch; begins anywhere, so that no tree's row equals
     * that of one that had its name before */
    uint64_t names;
};

MUST_USE int head_decode(struct slice value, struct head *out, struct err *e);
/* Of a tree; key and row keep what a batch may rely on. E_NOTFOUND, E_INVALID. */
MUST_USE int head_load(struct store *s, struct slice repo, struct slice name, struct buf *key,
                       struct buf *row, struct head *out, struct err *e);
void head_put(struct batch *b, struct slice key, const struct head *h);
MUST_USE int head_name_valid(struct slice repo, struct slice name, struct err *e);
void head_key(struct buf *out, struct slice repo, struct slice name); /* repo NUL name */
void snap_put(struct batch *b, struct slice repo, struct slice name, const struct snap *sn);
MUST_USE int snap_decode(struct slice value, uint64_t seq, struct snap *out, struct err *e);
/* repo NUL name NUL ~seq: the newest first */
void snap_key(struct buf *out, struct slice repo, struct slice name, uint64_t seq);
MUST_USE bool snap_key_parse(struct slice key, struct slice *tree, uint64_t *seq);

#endif
