/* forwarded.h - finds the client of a request that came through a trusted proxy.
 *
 * It reads X-Forwarded-For, -Proto and -Host if one of them is present, else Forwarded (RFC
 * 7239). Addresses are read from the right, past those of trusted proxies: the first other
 * address is the client, whatever the client itself wrote to its left. Scheme and host are the
 * last ones stated; in Forwarded they are those of the client's element. An invalid field counts
 * as absent.
 *
 * owns     proxies are counted; results are in the request's arena
 * threads  any
 */
#ifndef SERVER_GATE_FORWARDED_H
#define SERVER_GATE_FORWARDED_H

#include "server/http/msg.h"

struct proxies;

/* texts: networks, already checked by the configuration. */
struct proxies *proxies_new(const char *const *texts, size_t count);
struct proxies *proxies_hold(struct proxies *ps);
void proxies_release(struct proxies **pp); /* NULL is fine */
bool proxies_have(const struct proxies *ps, const struct sockaddr_storage *peer);

struct forwarded {
    struct sockaddr_storage peer;
    bool tls;
    struct slice host;
};
/* False: the request did not come from a trusted proxy; use its own address. */
bool forwarded_read(const struct proxies *ps, const struct http_req *r, struct forwarded *out);

#endif
