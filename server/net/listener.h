/* listener.h - a socket we accept on, and what its configuration says.
 *
 * A request knows its listener (http_req.listener): routing asks for its root, links for its address.
 */
#ifndef SERVER_NET_LISTENER_H
#define SERVER_NET_LISTENER_H

#include <stdbool.h>

struct listener_settings {
    const char *address;         /* "0.0.0.0:8080", "[::]:8443", ":0" picks a port */
    const char *root;            /* repo that answers at '/', or NULL */
    const char *tls_certificate; /* PEM chain; NULL: cleartext */
    const char *tls_key;
    const char *tcp_congestion; /* "cubic"; NULL: the system's */
};

struct listener;

const char *listener_root(const struct listener *l);    /* NULL without */
const char *listener_address(const struct listener *l); /* as bound: "127.0.0.1:40123" */
bool listener_tls(const struct listener *l);

#endif
