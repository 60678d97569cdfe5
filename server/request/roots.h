/* roots.h - answers the requests of other mirrords for the head of a published tree and for its
 * nodes (docs/protocols/sync.md).
 *
 * The caller needs the right to read the tree. Ids are not secret (a head names its root; logs and
 * pages show them), and the same node may be in trees of several repos. So knowing an id gives no
 * right: a request for a node names the snapshot's root and the path of nodes from there, and this
 * path is walked here. That reads a few nodes, and no row has to record which tree has which node.
 *
 * threads  the loop; rows are read on a pool
 */
#ifndef SERVER_REQUEST_ROOTS_H
#define SERVER_REQUEST_ROOTS_H

#include "server/request/request.h"

/* path: the part after "/-/sync/". */
void roots_answer(struct serve_loop *d, struct exchange *x, struct request_log *v,
                  struct slice path);

#endif
