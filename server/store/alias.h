/* alias.h - finds the blob with a given SHA-512, for clients that name files by it.
 *
 * An alias is a fact about bytes: it gives no right to them and does not keep them. Its row is
 * written with the blob or later, by code that has computed both digests of the same bytes. The
 * collector removes the row after the blob.
 *
 * owns     nothing
 * threads  any; blocks
 */
#ifndef SERVER_STORE_ALIAS_H
#define SERVER_STORE_ALIAS_H

#include "common/hash/called.h"
#include "server/store/store.h"

void alias_put(struct batch *b, const struct sha512 *name, const struct digest *d);
/* The digest of the blob with that name. *known: false when no row here has the name. */
MUST_USE int alias_find(struct store *s, const struct called *c, struct digest *out, bool *known,
                        struct err *e);
struct slice alias_key(const struct sha512 *name); /* the key of its row, borrowed */
/* A row of TABLE_ALIAS, whose key is the name's bytes. */
MUST_USE bool alias_decode(struct slice value, struct digest *out);

#endif
