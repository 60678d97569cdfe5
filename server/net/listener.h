/* listener.h - a socket we accept on, and what its configuration says.
 *
 * A request knows its listener (http_req.listener): routing asks for its root, links for its
 * address. Settings do not change: a reload makes another listener, on the same socket where the
 * address stays.
 *
 * owns     counted: a connection keeps its listener, also when that is retired
 * threads  any; listener_retire() once, when nobody accepts on it any more
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
    struct tls_validity valid;  /* of the certificate, as it was when the configuration was read */
    const char *tcp_congestion; /* "cubic"; NULL: the system's */
};

struct listener;

/* Binds and listens at once; the error names address and reason. old: a listener that is named
 * set->address, or NULL. It is held once more where all of *set is the same to the message, and has
 * its certificate read again; else its socket is taken over. The certificate, and what the settings
 * say of the socket itself, hold from listener_begin() on. */
MUST_USE int listener_open(const struct listener *old, const struct listener_settings *set,
                           struct listener **out, struct err *e);
void listener_begin(struct listener *l);
struct listener *listener_hold(const struct listener *l);
void listener_release(struct listener **lp); /* NULL is fine */
/* Closes its socket; connections that are there go on, and are told to end (http/server.h). */
void listener_retire(struct listener *l);
bool listener_retired(const struct listener *l);

int listener_fd(const struct listener *l);
struct tls_identity *listener_identity(const struct listener *l); /* NULL: cleartext */
const char *listener_root(const struct listener *l);              /* NULL without */
const char *listener_address(const struct listener *l);           /* as bound: "127.0.0.1:40123" */
bool listener_named(const struct listener *l, const char *address); /* by its configuration */

#endif
