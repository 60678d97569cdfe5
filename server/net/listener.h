/* listener.h - a listening socket and its settings.
 *
 * A request knows its listener (http_req.listener): routing needs its root, links need its address.
 * Settings do not change: a reload makes another listener, on the same socket if the address stays.
 *
 * owns     counted: a connection keeps its listener, also when that is retired
 * threads  any; listener_retire() once, when nothing is accepted on it any more
 * errors   the error names address and reason
 */
#ifndef SERVER_NET_LISTENER_H
#define SERVER_NET_LISTENER_H

#include <stdbool.h>

#include "common/base/err.h"
#include "server/net/tls.h"

struct listener_settings {
    const char *address;         /* "0.0.0.0:8080", "[::]:8443", ":0" picks a port */
    const char *root;            /* the repo that answers at '/', or NULL */
    const char *tls_certificate; /* PEM chain; NULL: cleartext */
    const char *tls_key;
    struct tls_validity valid;  /* of the certificate, when the configuration was read */
    const char *tcp_congestion; /* "cubic"; NULL: the system's */
};

struct listener;

/* Binds and listens in one step; the error names address and reason. old: an existing listener for
 * set->address, or NULL. If all of *set is the same, it is held once more and its certificate is
 * read again; otherwise its socket is taken over. The certificate and the settings of the socket
 * itself take effect with listener_begin(). */
MUST_USE int listener_open(const struct listener *old, const struct listener_settings *set,
                           struct listener **out, struct err *e);
void listener_begin(struct listener *l);
struct listener *listener_hold(const struct listener *l);
void listener_release(struct listener **lp); /* NULL is fine */
/* Releases what listener_open() gave and will not begin: a certificate that was read again is
 * forgotten. NULL is fine. */
void listener_cancel(struct listener **lp);
/* Closes its socket. Existing connections continue and are asked to end (http/server.h). */
void listener_retire(struct listener *l);
bool listener_retired(const struct listener *l);

int listener_fd(const struct listener *l);
struct tls_identity *listener_identity(const struct listener *l); /* NULL: cleartext */
const char *listener_root(const struct listener *l);              /* NULL without */
const char *listener_address(const struct listener *l);           /* as bound: "127.0.0.1:40123" */
/* by the address in its configuration */
bool listener_named(const struct listener *l, const char *address);

#endif
