/* build.h - a plan that was carried out becomes a tree; and what is tidied up once its head is published.
 *
 * Edits go in by the thousand, each batch a tree of its own that nobody refers to: memory stays small, and nodes that are
 * left over go with the next collection.
 *
 * threads  one at a time; blocks
 * errors   E_CHANGED: something went away meanwhile, plan again; E_INVALID: the paths clash
 */
#ifndef SERVER_SYNC_BUILD_H
#define SERVER_SYNC_BUILD_H

#include "server/sync/plan.h"

struct built {
    struct digest root;
    uint64_t entries, bytes;
};

/* The tree is among those who refer to the digest. */
void build_hold(struct batch *b, struct slice repo, const struct digest *d);
/* keep_gone: what is not listed stays (the upstream could not read all of its own), but for what is not
 * wanted any more. */
MUST_USE int build_tree(struct plan_of_run *p, bool keep_gone, struct built *out, struct err *e);
/* After the head was published, or found to be the same: the blobs are held by the tree, stage rows go or become seen rows. */
MUST_USE int build_settle(struct plan_of_run *p, struct err *e);

#endif
