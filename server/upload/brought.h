/* brought.h - a loose object that is whole, and what the tree remembers of it: which offer brought it, until a version names it.
 *
 * The offer (offer.h) has one file row, BROUGHT_FILE, and holds the digest while it lasts. Whoever may publish to the tree
 * finds the object by brought_key().
 *
 * threads  any; brought_forget() blocks
 */
#ifndef SERVER_UPLOAD_BROUGHT_H
#define SERVER_UPLOAD_BROUGHT_H

#include "server/upload/session.h"

#define BROUGHT_FILE SLICE("append") /* the offer's one file, and its writer's path (live.h) */

/* Adds to b: it is whole, and s has it. */
void brought_put(const struct session *s, const struct digest *d, uint64_t size_bytes,
                 struct batch *b);
/* The row in TABLE_UPLOAD that has the id of the offer that brought a digest to a tree: of use as long as that holds it. */
void brought_key(struct buf *out, struct slice repo, struct slice name, const struct digest *d);
/* Adds to b, with the rest of an offer that ends: nothing tells of it any more. */
void brought_forget(struct store *store, const struct session *s, const struct digest *d,
                    struct batch *b);

#endif
