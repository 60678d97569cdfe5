/* whole.h - an answer whose head says what only its last byte tells: it waits until all are here,
 * verified, and have a digest. */
#ifndef SERVER_REQUEST_WHOLE_H
#define SERVER_REQUEST_WHOLE_H

#include "server/request/request.h"

/* Of a plan that is `whole`: sends it. Takes a, a 200. keep: for the next too, as
 * request_send(). */
void whole_send(struct request *c, struct answer *a);

#endif
