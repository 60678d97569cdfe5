/* listener.h - a socket we accept on, and what its configuration says.
 *
 * A request knows its listener (http_req.listener): routing asks for its root, links for its address.
 */
#ifndef SERVER_NET_LISTENER_H
#define SERVER_NET_LISTENER_H

#include <stdbool.h>

#include "common/base/err.h"
#include "server/net/tls.h"

struct listener_settings {
    const char *address;         /* "0.0.0.0:8080", "[::]:8443", ":0" picks a port */
    const char *root;            /* repo that answers at '/', or NULL */
    const char *tls_certificate; /* PEM chain; NULL: cleartext */
    const char *tls_key;
    const char *tcp_congestion; /* "cubic"; NULL: the system's */
};

struct listener;

/* Binds and listens at once; the error names address and reason. */
MUST_USE int listener_open(const struct listener_settings *set, struct listener **out,
                           struct err *e);
void listener_close(struct listener **lp);
int listener_fd(const struct listener *l);
struct tls_identity *listener_identity(const struct listener *l); /* NULL: cleartext */

const char *listener_root(const struct listener *l);    /* NULL without */
const char *listener_address(const struct listener *l); /* as bound: "127.0.0.1:40123" */

#endif
