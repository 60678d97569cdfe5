/* proxy.h - an HTTP proxy on the way to a peer: what it is called, what it is asked (CONNECT, RFC
 * 9110 9.3.6), what it answers.
 *
 * Takes bytes and gives bytes; rsync/dial.c has the socket. A proxy's name is read as curl reads
 * it, so that `proxy` and `no_proxy` mean the same to every engine:
 * "http://[user:password@]host[:port]", "http://" may be left out, port 1080 unless written.
 *
 * owns     struct proxy borrows from the text it was read from
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
    struct slice user; /* "name:password", escapes undone by proxy_ask(); p == NULL: none */
    struct slice host; /* an IPv6 address without its brackets */
    uint16_t port;
};

/* E_INVALID; E_UNSUPPORTED for a proxy that is spoken to otherwise: https, socks. The sentence
 * holds no password. */
MUST_USE int proxy_parse(struct slice text, struct proxy *out, struct err *e);
/* The way to host by `proxy` and `no_proxy`, NULL where there is none: *through tells whether *out
 * is to be taken. */
MUST_USE int proxy_choose(const char *proxy, const char *no_proxy, struct slice host,
                          struct proxy *out, bool *through, struct err *e);
/* `no_proxy`, as curl has it: names and all below them, addresses, CIDR blocks, by commas or
 * blanks; "*" is all. NULL: none. */
bool proxy_avoids(const char *no_proxy, struct slice host);

/* The request for a way to host:port. E_INVALID: the user's escapes are none. */
MUST_USE int proxy_ask(const struct proxy *p, struct slice host, uint16_t port, struct buf *out,
                       struct err *e);
/* What has come from the proxy so far. 0: the way is open, *used bytes were the proxy's, what is
 * behind them is the peer's. E_AGAIN: there is more to come. E_DENIED: it wants other credentials,
 * or lets nobody there; E_NETWORK: it could not, or is none. */
MUST_USE int proxy_answer(struct slice in, size_t *used, struct err *e);

#endif
