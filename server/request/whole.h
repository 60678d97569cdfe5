/* whole.h - sends an answer whose head depends on its last byte: it waits until all bytes are
 * present, verified, and have a digest.
 *
 * threads  the loop of the request
 */
#ifndef SERVER_REQUEST_WHOLE_H
#define SERVER_REQUEST_WHOLE_H

#include "server/request/request.h"

/* Sends the answer of a plan that is `whole`. Takes a, a 200. keep: as in request_send(). */
void whole_send(struct request *c, struct answer *a);

#endif
