/* closure.h - what a tree's own indexes name is in the tree, as they name it: else the upstream was seen half-way, and nothing
 * is published.
 *
 * threads  any; blocks: reads the indexes
 * errors   E_AGAIN with what is missing where
 */
#ifndef SERVER_SYNC_CLOSURE_H
#define SERVER_SYNC_CLOSURE_H

#include "server/store/tree.h"

struct closure_report {
    uint64_t indexes, files; /* checked */
    uint64_t unread;         /* indexes in a packing that is not read here */
};

/* A Debian archive, wherever its dists/ stands. */
MUST_USE int closure_debian(struct store *s, const struct digest *root, struct closure_report *out,
                            struct err *e);

#endif
