/* need.h - facts that a plan asks for: a row, a head, a tree entry, an index document, the request's own body. Resolved off the loop, then the call
 * plans again (repo.h). */
#ifndef SERVER_SERVE_NEED_H
#define SERVER_SERVE_NEED_H

#include "server/serve/call.h"

/* Adds c->plan.need to c->facts and calls call_advance(), or answers when it failed for good. */
void need_resolve(struct call *c);
/* The fact has come: the call plans again. */
void need_learn(struct call *c, const struct fact *f);
/* The request's own body of at most max bytes: fn() has it for as long as the call lives; or E_TOOBIG. Not called when the client left. */
void need_body(struct call *c, size_t max, void (*fn)(struct call *c, int rc, struct slice body));
void need_body_data(struct call *c, struct slice bytes, bool end); /* while c->body is set */
void need_body_gone(struct call *c);

#endif
