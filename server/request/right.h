/* right.h - who may have the bytes of a digest: whoever may read some path that holds it.
 *
 * threads  any; blocks (rows are read)
 */
#ifndef SERVER_REQUEST_RIGHT_H
#define SERVER_REQUEST_RIGHT_H

#include "server/live/repo_set.h"
#include "server/http/principal.h"
#include "server/store/store.h"

/* E_NOTFOUND: unknown and forbidden look alike. `last`, when not NULL, is {0} at first: the tree
 * that opened the digest before, of the same caller a moment ago, opens most others of its kind,
 * and one row says so. */
struct right_last {
    struct buf holder; /* repo, NUL, kind, tree; buf_free() is the caller's */
};
MUST_USE int right_to_digest(struct store *s, const struct repo_set *set,
                             const struct principal *who, const struct digest *d,
                             struct right_last *last, struct err *e);

#endif
