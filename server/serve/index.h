/* index.h - an index document on its way to the client: gathered whole, rewritten by the repo's adapter, what it tells kept. */
#ifndef SERVER_SERVE_INDEX_H
#define SERVER_SERVE_INDEX_H

#include "server/serve/call.h"

/* a: a 200 for c's plan, which has `rewrite`. Takes a. */
void index_send(struct call *c, struct answer *a);

#endif
