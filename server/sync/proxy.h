/* proxy.h - an HTTP proxy on the way to a peer: its address, the request to it (CONNECT, RFC 9110
 * 9.3.6), and its response.
 *
 * It takes bytes and gives bytes; rsync/dial.c has the socket. A proxy's name is parsed as curl
 * parses it, so that `proxy` and `no_proxy` mean the same for every engine:
 * "http://[user:password@]host[:port]". "http://" may be left out, and the default port is 1080.
 *
 * owns     struct proxy borrows from the text that it was parsed from
 * threads  any
 */
#ifndef SERVER_SYNC_PROXY_H
#define SERVER_SYNC_PROXY_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/slice.h"

enum { DIAL_HOST_MAX = 255 }; /* of a host's name, a peer's or a proxy's */
enum { PROXY_PORT = 1080, PROXY_USER_MAX = 1024, PROXY_ANSWER_MAX = 16 << 10 };

struct proxy {
    struct slice user; /* "name:password", decoded by proxy_ask(); p == NULL: none */
    struct slice host; /* an IPv6 address without its brackets */
    uint16_t port;
};

/* E_INVALID; E_UNSUPPORTED for other kinds of proxy: https, socks. The sentence contains no
 * password. */
MUST_USE int proxy_parse(struct slice text, struct proxy *out, struct err *e);
/* The way to host by `proxy` and `no_proxy`, each may be NULL. *through says whether to use *out.
 */
MUST_USE int proxy_choose(const char *proxy, const char *no_proxy, struct slice host,
                          struct proxy *out, bool *through, struct err *e);
/* `no_proxy` as curl has it: names and all below them, addresses, CIDR blocks, separated by
 * commas or blanks; "*" is all. NULL: none. */
bool proxy_avoids(const char *no_proxy, struct slice host);

/* Writes the request for a connection to host:port. E_INVALID: the user's escapes are invalid. */
MUST_USE int proxy_ask(const struct proxy *p, struct slice host, uint16_t port, struct buf *out,
                       struct err *e);
/* Parses what the proxy has sent so far. 0: the connection is open; the first *used bytes were
 * the proxy's, the rest are the peer's. E_AGAIN: incomplete. E_DENIED: it requires other
 * credentials, or does not allow this host. E_NETWORK: it failed, or is not a proxy. */
MUST_USE int proxy_answer(struct slice in, size_t *used, struct err *e);

#endif
