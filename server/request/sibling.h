/* sibling.h - gives another mirror of the cluster what only this one has (cluster/relay_fetch.h).
 * The request must be signed: relay.h has accepted it.
 *
 * threads  the loop of the exchange; uploads are looked up on deps->readers, rows on deps->disk
 */
#ifndef SERVER_REQUEST_SIBLING_H
#define SERVER_REQUEST_SIBLING_H

#include "server/request/serve_loop.h"

void sibling_answer_uploaded(struct serve_loop *d, struct exchange *x, struct request_log *v);
void sibling_answer_row(struct serve_loop *d, struct exchange *x, struct request_log *v);

#endif
