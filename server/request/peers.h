/* peers.h - the door at /-/peers/<sha256>: a node says what it has of a blob, and is told who else
 * brings it (server/peers).
 *
 * Whoever may have the bytes (right.h) may share them; to all others, and without a `peers`
 * section, there is nothing here.
 *
 * threads  the loop; rows are read, and the body, on a pool
 */
#ifndef SERVER_REQUEST_PEERS_H
#define SERVER_REQUEST_PEERS_H

#include "server/request/request.h"

/* hex: what stands behind /-/peers/. */
void peers_answer(struct serve_loop *d, struct exchange *x, struct request_log *v,
                  struct slice hex);

#endif
