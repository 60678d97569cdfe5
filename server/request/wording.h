/* wording.h - sends a large text of an adapter (repo.h: plan.word), which a maker words once for
 * all requests for it.
 *
 * threads  the loop of the request
 */
#ifndef SERVER_REQUEST_WORDING_H
#define SERVER_REQUEST_WORDING_H

#include "server/request/request.h"

void wording_send(struct request *c); /* executes a PLAN_REPLY that has `word` */

#endif
