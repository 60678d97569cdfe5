/* right.h - who may have the bytes of a digest: whoever may read some path that holds it.
 *
 * threads  any; blocks (rows are read)
 */
#ifndef SERVER_SERVE_RIGHT_H
#define SERVER_SERVE_RIGHT_H

#include "server/daemon.h"
#include "server/http/principal.h"
#include "server/store/store.h"

/* E_NOTFOUND: unknown and forbidden look alike. */
MUST_USE int right_to_digest(struct store *s, const struct repo_set *set,
                             const struct principal *who, const struct digest *d, struct err *e);

#endif
