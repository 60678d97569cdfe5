/* need.h - facts that a plan asks for: a row, a head, a tree entry, an index document. Resolved off the loop, then the call
 * plans again (repo.h). */
#ifndef SERVER_SERVE_NEED_H
#define SERVER_SERVE_NEED_H

#include "server/serve/call.h"

/* Adds c->plan.need to c->facts and calls call_advance(), or answers when it failed for good. */
void need_resolve(struct call *c);

#endif
