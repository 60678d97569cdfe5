/* neighbor.h - answers another mirror of the cluster that asks for an object (cache/neighbor.h), as
 * the origin would.
 *
 * threads  the loop of the exchange
 */
#ifndef SERVER_REQUEST_NEIGHBOR_H
#define SERVER_REQUEST_NEIGHBOR_H

#include "server/request/serve_loop.h"

void neighbor_answer(struct serve_loop *d, struct exchange *x, struct request_log *v);

#endif
