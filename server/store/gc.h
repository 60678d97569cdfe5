/* gc.h - everything that the snapshots of all trees reach, as sets of 64-bit hashes.
 *
 * mark_run() walks every snapshot once and fills a struct mark, which collection and the fsck then
 * look up.
 *
 * owns     mark_free() releases the sets
 * threads  one at a time; blocks, and reads every node of every snapshot once per tree
 * errors   E_CORRUPT when a tree cannot be read and on_bad is not set: what is reached is then
 *          unknown
 */
#ifndef SERVER_STORE_GC_H
#define SERVER_STORE_GC_H

#include "server/store/kv.h"
#include "server/store/set64.h"
#include "server/store/tree.h"

struct mark {
    struct set64 nodes;   /* node ids */
    struct set64 digests; /* of files in any tree */
    struct set64 held;    /* pairs of a digest and a tree */
    struct set64 heads;   /* pairs of a tree and its head's newest number */
    struct set64 seen;    /* pairs of a node and a tree that were visited */
};

struct mark_events {
    void (*on_bad)(void *arg, struct slice tree, uint64_t seq, const struct err *why);
    /* Called once for every file and tree. tree: repo NUL name. */
    int (*on_file)(void *arg, struct slice tree, const struct entry *en, struct err *e);
    void *arg;
};

MUST_USE int mark_run(struct store *s, struct kv_view *view, const struct mark_events *ev,
                      struct mark *out, struct err *e);
/* Adds what one more version reaches. tree: repo NUL name. */
MUST_USE int mark_version(struct store *s, struct mark *m, struct slice tree,
                          const struct digest *root, struct err *e);
/* Adds a blob. */
void mark_add_digest(struct mark *m, const struct digest *d);
bool mark_has_node(const struct mark *m, const struct digest *id);
bool mark_has_digest(const struct mark *m, const struct digest *d);
void mark_free(struct mark *m);

#endif
