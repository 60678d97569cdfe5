/* gc.h - what the snapshots of all trees reach, as sets of 64-bit hashes.
 *
 * owns     mark_free() releases the sets
 * threads  one at a time; blocks, and reads every node of every snapshot once a tree
 * errors   E_CORRUPT when a tree does not read and nobody takes on_bad: what is reached is then not
 *          known
 */
#ifndef SERVER_STORE_GC_H
#define SERVER_STORE_GC_H

#include "server/store/kv.h"
#include "server/store/set64.h"
#include "server/store/tree.h"

struct mark {
    struct set64 nodes;   /* node ids */
    struct set64 digests; /* of files in any tree */
    struct set64 held;    /* digest and tree */
    struct set64 heads;   /* tree and the head's newest number */
    struct set64 seen;    /* node and tree: visited */
};

struct mark_events {
    void (*on_bad)(void *arg, struct slice tree, uint64_t seq, const struct err *why);
    /* Once for every file and tree. tree: repo NUL name. */
    int (*on_file)(void *arg, struct slice tree, const struct entry *en, struct err *e);
    void *arg;
};

MUST_USE int mark_run(struct store *s, struct kv_view *view, const struct mark_events *ev,
                      struct mark *out, struct err *e);
void mark_free(struct mark *m);

#endif
