/* seek.h - lookups in one tree that come in path order: the nodes of the last way down are kept.
 *
 * A way down checks what a stranger's tree could get wrong: levels fall by one, a node begins where
 * its parent says.
 *
 * owns     seek_close() frees the nodes; entries are borrowed until the next call
 * threads  one at a time; blocks
 */
#ifndef SERVER_STORE_SEEK_H
#define SERVER_STORE_SEEK_H

#include "server/store/node.h"

struct seek {
    struct store *s;
    struct digest root;
    struct {
        struct digest id;
        struct tree_node node;
        bool full;
    } way[NODE_LEVELS];
};

void seek_open(struct seek *k, struct store *s, const struct digest *root);
void seek_close(struct seek *k);
/* The entry at `path`. E_NOTFOUND. */
MUST_USE int seek_get(struct seek *k, struct slice path, const struct entry **out, struct err *e);
/* The first entry at or behind `path`, or only behind it. E_NOTFOUND: the tree ends. */
MUST_USE int seek_from(struct seek *k, struct slice path, bool behind, const struct entry **out,
                       struct err *e);
/* Loads a child, checked against what its parent says of it. */
MUST_USE int seek_load(struct store *s, const struct child *c, unsigned level,
                       struct tree_node *out, struct err *e);

#endif
