/* wording.h - a large text of an adapter's (repo.h: plan.word): worded by a maker, once for all who ask for it. */
#ifndef SERVER_SERVE_WORDING_H
#define SERVER_SERVE_WORDING_H

#include "server/serve/call.h"

void wording_send(struct call *c); /* executes a PLAN_REPLY that has `word` */

#endif
