/* put.h - moves a request body into a hosted tree: from the exchange to the store's upload sink,
 * block by block.
 *
 * One block at a time is on the pool. Bytes that arrive in the meantime are gathered, and beyond a
 * bound the peer is paused. The answer is the store's. When the client disconnects, the sink keeps
 * what it has (upload/upload.h).
 *
 * owns     a flow belongs to its request (request.h: flow)
 * threads  the loop; the sink's calls run on the disk pool
 */
#ifndef SERVER_REQUEST_PUT_H
#define SERVER_REQUEST_PUT_H

#include "server/request/request.h"

void put_start(struct request *c); /* executes c->plan.put */

#endif
