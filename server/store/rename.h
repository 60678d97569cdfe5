/* rename.h - renames, copies or removes a tree: all its rows change in one batch, so a crash leaves
 * the old or the new state.
 *
 * The old name redirects to the new one until another tree takes it. Redirects are rows of
 * TABLE_MOVED and always name an existing tree. Numbers, labels, branches and notes are kept.
 * Uploads that were begun under the old name have to start again.
 *
 * owns     nothing
 * threads  any; blocks
 * errors   E_NOTFOUND: no such tree; E_EXISTS: the new name is taken; E_TOOBIG: more files than one
 *          batch holds; E_CHANGED: published in the meantime; try again
 */
#ifndef SERVER_STORE_RENAME_H
#define SERVER_STORE_RENAME_H

#include "server/store/tree.h"

MUST_USE int rename_run(struct store *s, struct slice repo, struct slice from, struct slice to,
                        struct err *e);
/* Makes a second tree with the same versions, numbers, labels, branches and notes; no file is
 * copied. E_EXISTS also when the name redirects to a tree that had it. */
MUST_USE int rename_copy(struct store *s, struct slice repo, struct slice from, struct slice to,
                         struct err *e);
/* Removes the tree, its versions, branches, tags and the redirects to it. What only it had can no
 * longer be read and is removed by the next collection. */
MUST_USE int rename_drop(struct store *s, struct slice repo, struct slice name, struct err *e);

/* The present name of the tree that had this name. E_NOTFOUND. */
MUST_USE int rename_find(struct store *s, struct slice repo, struct slice name, struct buf *to,
                         struct err *e);
void rename_key(struct buf *out, struct slice repo, struct slice name);
/* Adds to b that a tree takes this name. */
void rename_forget(struct batch *b, struct slice repo, struct slice name);

#endif
