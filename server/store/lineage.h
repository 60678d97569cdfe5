/* lineage.h - which version of a tree last changed each of its paths.
 *
 * It compares each version with its parent, newest first, which costs as much as was changed. It
 * looks at up to LINEAGE_VERSIONS versions and LINEAGE_PATHS paths. A path that did not change in
 * these is attributed to the oldest version that was looked at.
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
/* Of a file, or of a folder (without its '/'): the last version that added, changed or removed
 * anything in it. */
uint64_t lineage_seq(const struct lineage *l, struct slice path);
void lineage_close(struct lineage **lp); /* NULL is fine */

#endif
