/* relay.h - passes a request of an upload on to the mirror of the cluster that has the upload, and
 * its response back (cluster/relay.h says which mirror that is).
 *
 * The request's body streams through a window of RELAY_WINDOW_BYTES: its client is paused while the
 * other mirror is slower. So does the response, through a smaller one. The body is not read before
 * the other mirror has accepted a connection. If it does not accept one, another mirror becomes
 * responsible for the tree, and this one answers if there is no other. An upload with an id has no
 * other mirror: the request waits for RELAY_PATIENCE_MS, in which a mirror that is restarted is
 * back. A request whose connection breaks after that is answered with 503: its client asks again.
 *
 * A mirror that is alive no more, by the cluster's list, ends its requests. So none hangs.
 *
 * owns     a flow belongs to its request (request.h: relay)
 * threads  the loop
 */
#ifndef SERVER_REQUEST_RELAY_H
#define SERVER_REQUEST_RELAY_H

#include "server/request/request.h"

enum { RELAY_WINDOW_BYTES = 1 << 20, RELAY_PATIENCE_MS = 10000 };

/* False: this mirror answers by its own plan. True: another one does, or else here() will. */
MUST_USE bool relay_start(struct request *c, void (*here)(struct request *c));
/* Closes the connections of a loop that has no flows any more. */
struct xfer_loop;
void relay_loop_close(struct xfer_loop **lp);
/* A request that another mirror passes on becomes the client's own. False: it is answered with 403,
 * because no mirror of this cluster has signed it. */
MUST_USE bool relay_accept(struct serve_loop *d, struct exchange *x, struct request_log *v);

#endif
