/* index.h - an index document on its way to the client: gathered whole, rewritten by the repo's
 * adapter, what it tells kept. */
#ifndef SERVER_REQUEST_INDEX_H
#define SERVER_REQUEST_INDEX_H

#include "server/request/request.h"

/* a: a 200 for c's plan, which has `rewrite`. Takes a. */
void index_send(struct request *c, struct answer *a);

#endif
