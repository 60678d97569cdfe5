/* seek.h - lookups in one tree that come in path order: the nodes of the last descent are kept.
 *
 * A descent checks what a tree from another machine could get wrong: levels must fall by one, and a
 * node must begin where its parent says.
 *
 * owns     seek_close() frees the nodes; entries are borrowed until the next call
 * threads  one at a time; blocks
 * errors   E_NOTFOUND; E_CORRUPT for a malformed tree
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
/* The first entry at or after `path`; with `behind`, only after it. E_NOTFOUND: the tree ends. */
MUST_USE int seek_from(struct seek *k, struct slice path, bool behind, const struct entry **out,
                       struct err *e);
/* Loads a child and checks it against its parent's entry. */
MUST_USE int seek_load(struct store *s, const struct child *c, unsigned level,
                       struct tree_node *out, struct err *e);

#endif
