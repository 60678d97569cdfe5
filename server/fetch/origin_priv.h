/* origin_priv.h - an origin's inside, for server/fetch and its tests alone. */
#ifndef SERVER_FETCH_ORIGIN_PRIV_H
#define SERVER_FETCH_ORIGIN_PRIV_H

#include <stdatomic.h>

#include "common/codec/url.h"
#include "server/fetch/request.h"

struct origin {
    _Atomic uint32_t refs;
    char *repo;
    char *url;
    struct url split; /* of url */
    uint64_t identity;
    uint64_t *former; /* identities */
    size_t former_count;
    char **hosts;
    size_t hosts_count;
    bool hosts_set;
    char *proxy;
    char *no_proxy;
    bool proxy_resolve;
    char *ca_file;
    char *authorization;
    struct s3 *s3; /* it is a bucket; or NULL */
    bool tokens;   /* it may ask for them: bearer.h */
    uint32_t connections;
    struct crowd crowd;
    uint32_t connect_ms;
    uint32_t stall_ms;
    uint32_t patience_ms;
    uint64_t rate_bytes_per_s;
    struct origin_request_counters *count; /* own_count, or what the process keeps for longer */
    struct origin_request_counters own_count;
};

bool origin_is_home(const struct origin *o, const struct url *u); /* same scheme, host, port */
/* The configuration names this host: it may stand at any address. */
bool origin_trusts_address(const struct origin *o, const struct url *u);
/* The rules of a transfer to this hop: the proxy, who is reached without it, and which addresses
 * may be spoken to. All that speaks for an origin asks here. A trusted host may stand at any
 * address; of others each address is judged, through a proxy where `proxy_resolve` says so. */
struct xfer_params;
void origin_set_way(const struct origin *o, bool trusted, struct xfer_params *w);

#endif
