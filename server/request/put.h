/* put.h - a body on its way into a hosted tree: from the exchange to the store's upload sink, block
 * by block.
 *
 * One block is out on the pool at a time; what arrives meanwhile is gathered, and past a bound the
 * peer is held. The answer is the store's. A client that leaves lets the sink keep what it has
 * (upload/upload.h).
 */
#ifndef SERVER_REQUEST_PUT_H
#define SERVER_REQUEST_PUT_H

#include "server/request/request.h"

void put_start(struct request *c); /* executes c->plan.put */

#endif
