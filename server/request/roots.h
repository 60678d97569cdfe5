/* roots.h - what other mirrords ask for: the head of a published tree, its nodes
 * (docs/protocols/sync.md).
 *
 * The right is the right to read the tree. Ids are no secrets (a head names its root, logs and
 * pages do), and the same node may stand in trees of several repos, so that knowing an id is no
 * right: whoever asks for a node says which snapshot's root it hangs from, and by which way, and
 * the way is walked here. A few nodes are read for that, and no row need say who has which.
 *
 * threads  the loop; rows are read on a pool
 */
#ifndef SERVER_REQUEST_ROOTS_H
#define SERVER_REQUEST_ROOTS_H

#include "server/request/request.h"

/* path: behind "/-/sync/". */
void roots_answer(struct serve_loop *d, struct exchange *x, struct request_log *v,
                  struct slice path);

#endif
