/* right.h - who may have the bytes of a digest: every caller that may read some path with that
 * digest.
 *
 * owns     nothing but the caller's struct right_last
 * threads  any; blocks (rows are read)
 * errors   E_NOTFOUND: unknown or forbidden, which look the same
 */
#ifndef SERVER_REQUEST_RIGHT_H
#define SERVER_REQUEST_RIGHT_H

#include "server/live/repo_set.h"
#include "server/http/principal.h"
#include "server/store/store.h"

/* E_NOTFOUND: unknown and forbidden digests look the same. `last`, when not NULL, is {0} at first.
 * The tree that allowed the caller's previous digest a moment ago allows most of the next ones, and
 * checking that takes one row. */
struct right_last {
    struct buf holder; /* repo, NUL, kind, tree; the caller calls buf_free() */
};
MUST_USE int right_to_digest(struct store *s, const struct repo_set *set,
                             const struct principal *who, const struct digest *d,
                             struct right_last *last, struct err *e);

#endif
