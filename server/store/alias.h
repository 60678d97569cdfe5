/* alias.h - which blob has a SHA-512, for clients that name by it: a fact about bytes, no right to
 * them and no hold on them.
 *
 * A row is written with the blob or after it, by who has seen both digests of the same bytes; the
 * collector takes it away after the blob.
 *
 * threads  any; blocks
 */
#ifndef SERVER_STORE_ALIAS_H
#define SERVER_STORE_ALIAS_H

#include "common/hash/called.h"
#include "server/store/store.h"

void alias_put(struct batch *b, const struct sha512 *name, const struct digest *d);
/* The digest of what is called so. *known: false, nothing here is, as far as anybody has told. */
MUST_USE int alias_find(struct store *s, const struct called *c, struct digest *out, bool *known,
                        struct err *e);
struct slice alias_key(const struct sha512 *name); /* of its row, borrowed */
/* A row of TABLE_ALIAS, whose key is the name's bytes. */
MUST_USE bool alias_decode(struct slice value, struct digest *out);

#endif
