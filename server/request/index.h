/* index.h - sends an index document: it is read as a whole, rewritten by the repo's adapter, and
 * what it says of other keys is stored.
 *
 * threads  the loop of the request
 */
#ifndef SERVER_REQUEST_INDEX_H
#define SERVER_REQUEST_INDEX_H

#include "server/request/request.h"

/* a: a 200 for c's plan, which has `rewrite`. Takes a. */
void index_send(struct request *c, struct answer *a);

#endif
