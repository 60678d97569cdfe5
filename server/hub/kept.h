/* kept.h - reads one object of the cache from its row, without asking an origin.
 *
 * owns     nothing: results are in the caller's arena and bufs
 * threads  any; blocks
 * errors   E_NOTFOUND is ordinary
 */
#ifndef SERVER_HUB_KEPT_H
#define SERVER_HUB_KEPT_H

#include "server/cache/object.h"
#include "server/store/store.h"

/* The row of a key: everybody's, else the first one that a caller's right brought. */
MUST_USE int kept_row(struct store *s, struct slice repo, struct slice key, struct buf *row,
                      struct err *e);
bool kept_is_here(struct store *s, struct slice repo, struct slice key);
/* The metadata of a row, in a; and its bytes, appended to doc. */
MUST_USE int kept_read(struct store *s, struct slice row, struct arena *a, struct object *out,
                       struct buf *doc, struct err *e);

#endif
