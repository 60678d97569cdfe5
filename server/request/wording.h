/* wording.h - a large text of an adapter's (repo.h: plan.word): worded by a maker, once for all who
 * ask for it. */
#ifndef SERVER_REQUEST_WORDING_H
#define SERVER_REQUEST_WORDING_H

#include "server/request/request.h"

void wording_send(struct request *c); /* executes a PLAN_REPLY that has `word` */

#endif
