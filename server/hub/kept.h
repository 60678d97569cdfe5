/* kept.h - one object of the cache, out of its row: for whoever looks at what is here and asks no
 * origin for it.
 *
 * threads  any; blocks
 * errors   E_NOTFOUND is ordinary
 */
#ifndef SERVER_HUB_KEPT_H
#define SERVER_HUB_KEPT_H

#include "server/cache/object.h"
#include "server/store/store.h"

/* The row of a key: everybody's, else the first of those that somebody's right brought. */
MUST_USE int kept_row(struct store *s, struct slice repo, struct slice key, struct buf *row,
                      struct err *e);
bool kept_is_here(struct store *s, struct slice repo, struct slice key);
/* What a row tells, in a, and the bytes that it tells of, behind what doc holds. */
MUST_USE int kept_read(struct store *s, struct slice row, struct arena *a, struct object *out,
                       struct buf *doc, struct err *e);

#endif
