/* rename.h - a tree gets another name, is copied, or goes: all its rows in one batch, so that a
 * crash leaves the one state or the other.
 *
 * The old name leads to the new one until somebody makes a tree of it: rows of TABLE_MOVED, which
 * always name a tree that is there. Numbers, labels, branches, notes go along. Uploads that were
 * begun under the old name have to begin anew.
 *
 * threads  any; blocks
 * errors   E_NOTFOUND: no such tree; E_EXISTS: the new name is taken; E_TOOBIG: more files than one
 *          batch holds; E_CHANGED: published meanwhile, try again
 */
#ifndef SERVER_STORE_RENAME_H
#define SERVER_STORE_RENAME_H

#include "server/store/tree.h"

MUST_USE int rename_run(struct store *s, struct slice repo, struct slice from, struct slice to,
                        struct err *e);
/* A second tree of the same versions, numbers, labels, branches and notes; no byte of a file is
 * copied. E_EXISTS also when the name leads to a tree that had it. */
MUST_USE int rename_copy(struct store *s, struct slice repo, struct slice from, struct slice to,
                         struct err *e);
/* The tree, its versions, branches, tags and whatever led to it. What only it had goes with the
 * next collection; nobody reads it until then. */
MUST_USE int rename_drop(struct store *s, struct slice repo, struct slice name, struct err *e);

/* What a tree that had this name is called now. E_NOTFOUND. */
MUST_USE int rename_find(struct store *s, struct slice repo, struct slice name, struct buf *to,
                         struct err *e);
void rename_key(struct buf *out, struct slice repo, struct slice name);
/* Adds to b: a tree takes this name. */
void rename_forget(struct batch *b, struct slice repo, struct slice name);

#endif
