/* head.h - the rows of heads and snapshots, for the files of this folder.
 *
 * tree.h has the calls for everybody else.
 *
 * owns     nothing: head_load() fills the caller's bufs
 * threads  any; head_load() blocks
 * errors   E_NOTFOUND, E_INVALID
 */
#ifndef SERVER_STORE_HEAD_H
#define SERVER_STORE_HEAD_H

#include "server/store/tree.h"

struct head {
    uint64_t live_seq;
    uint64_t newest_seq; /* numbers are never reused */
    bool hold;           /* rolled back: a sync must not publish over it on its own */
    /* Changes with every label, tag and branch. It starts at a random number, so that a tree's row
     * never equals the row of an earlier tree of the same name. */
    uint64_t names;
};

MUST_USE int head_decode(struct slice value, struct head *out, struct err *e);
/* The head of a tree. key and row are filled for a batch's preconditions. E_NOTFOUND, E_INVALID. */
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
