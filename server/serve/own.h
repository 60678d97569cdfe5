/* own.h - the paths that are ours, not a repo's: health, metrics, the page, digests (DESIGN 2.2). */
#ifndef SERVER_SERVE_OWN_H
#define SERVER_SERVE_OWN_H

#include "server/serve/call.h"

/* "scheme://host" as the client reaches us: public_url, else by the request. In the arena. */
struct slice own_base_url(const struct http_req *req, const struct conf *conf, struct arena *a);
/* Health and metrics: answered when no other connection is. */
bool own_is_vital(const struct http_req *req);
void own_answer(struct desk *d, struct exchange *x, struct visit *v);

#endif
