/* lineage.h - which version of a tree last changed each of its paths: found by comparing each
 * version with the one it was made from, newest first, which costs as much as was changed.
 *
 * Looks at LINEAGE_VERSIONS versions and LINEAGE_PATHS paths; what was not changed in these is said
 * to be of the oldest one looked at.
 *
 * owns     lineage_close() frees it
 * threads  one at a time; blocks
 */
#ifndef SERVER_STORE_LINEAGE_H
#define SERVER_STORE_LINEAGE_H

#include "server/store/tree.h"

enum { LINEAGE_VERSIONS = 1000, LINEAGE_PATHS = 200000 };

struct lineage;
MUST_USE int lineage_open(struct store *s, struct slice repo, struct slice tree,
                          const struct snap *from, struct lineage **out, struct err *e);
/* Of a file, or of a folder (without its '/'): when anything in it came, changed or went. */
uint64_t lineage_seq(const struct lineage *l, struct slice path);
void lineage_close(struct lineage **lp); /* NULL is fine */

#endif
