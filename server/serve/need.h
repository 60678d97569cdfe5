/* need.h - a request's own body, where it is small and says what is wanted. */
#ifndef SERVER_SERVE_NEED_H
#define SERVER_SERVE_NEED_H

#include "server/serve/call.h"

/* At most max bytes: fn() has them for as long as the call lives; or E_TOOBIG. Not called when the client left. */
void need_body(struct call *c, size_t max, void (*fn)(struct call *c, int rc, struct slice body));
void need_body_data(struct call *c, struct slice bytes, bool end); /* while c->body is set */
void need_body_gone(struct call *c);

#endif
