/* peers.h - answers /-/peers/<sha256>: a node announces which parts of a blob it has, and gets the
 * list of other nodes that share it (server/peers).
 *
 * Callers that may have the bytes (right.h) may share them. All others, and all callers without a
 * `peers` section, get a 404.
 *
 * threads  the loop; rows are read, and the body, on a pool
 */
#ifndef SERVER_REQUEST_PEERS_H
#define SERVER_REQUEST_PEERS_H

#include "server/request/request.h"

/* hex: the part of the path after /-/peers/. */
void peers_answer(struct serve_loop *d, struct exchange *x, struct request_log *v,
                  struct slice hex);

#endif
