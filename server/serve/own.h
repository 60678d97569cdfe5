/* own.h - the paths that are ours, not a repo's: health, metrics, the page, digests (DESIGN 2.2). */
#ifndef SERVER_SERVE_OWN_H
#define SERVER_SERVE_OWN_H

#include "server/serve/call.h"

void own_answer(struct desk *d, struct exchange *x, struct visit *v);

#endif
