/* alias.h - which blob has a SHA-512, for clients that name by it: a fact about bytes, no right to them and no hold on them.
 *
 * A row is written with the blob or after it, by who has seen both digests of the same bytes; the collector takes it away
 * after the blob.
 *
 * threads  any; blocks
 */
#ifndef SERVER_STORE_ALIAS_H
#define SERVER_STORE_ALIAS_H

#include "common/hash/sha512.h"
#include "server/store/store.h"

void alias_put(struct batch *b, const struct sha512 *name, const struct digest *d);
MUST_USE int alias_get(struct store *s, const struct sha512 *name, struct digest *out,
                       struct err *e); /* E_NOTFOUND */
/* A row of TABLE_ALIAS, whose key is the name's bytes. */
MUST_USE bool alias_decode(struct slice value, struct digest *out);

#endif
