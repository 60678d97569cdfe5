/* forwarded.h - who a request is from when it came through a proxy that we trust.
 *
 * X-Forwarded-For, -Proto and -Host when one of them is there, else Forwarded (RFC 7239). Addresses
 * are read from the right, past those of trusted proxies: the first that is none is the client,
 * whatever it wrote to the left itself. Scheme and host are the last that were said, in Forwarded
 * those of the client's element. A field that makes no sense says nothing.
 *
 * owns     proxies are counted; what is read lies in the request's arena
 * threads  any
 */
#ifndef SERVER_GATE_FORWARDED_H
#define SERVER_GATE_FORWARDED_H

#include "server/http/msg.h"

struct proxies;

/* texts: networks, judged by the configuration. */
struct proxies *proxies_new(const char *const *texts, size_t count);
struct proxies *proxies_hold(struct proxies *ps);
void proxies_release(struct proxies **pp); /* NULL is fine */
bool proxies_have(const struct proxies *ps, const struct sockaddr_storage *peer);

struct forwarded {
    struct sockaddr_storage peer;
    bool tls;
    struct slice host;
};
/* False: the request came from elsewhere, and speaks for itself. */
bool forwarded_read(const struct proxies *ps, const struct http_req *r, struct forwarded *out);

#endif
