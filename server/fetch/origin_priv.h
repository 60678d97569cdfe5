/* origin_priv.h - the inside of an origin, for server/fetch and its tests alone.
 *
 * owns     origin_free() frees what it points to
 * threads  constant, except the counters and the crowd
 */
#ifndef SERVER_FETCH_ORIGIN_PRIV_H
#define SERVER_FETCH_ORIGIN_PRIV_H

#include <stdatomic.h>

#include "common/codec/url.h"
#include "server/fetch/alternates.h"
#include "server/fetch/request.h"

enum { ORIGIN_REST_MAX_MS = 300000 }; /* no origin silences us for longer */

struct origin {
    _Atomic uint32_t refs;
    char *repo;
    char *url;
    struct url split;              /* of url */
    struct alternates *alternates; /* url, and others with the same files */
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
    struct s3 *s3; /* for a bucket; or NULL */
    bool tokens;   /* it may require tokens: bearer.h */
    uint32_t connections;
    struct crowd crowd;
    uint32_t connect_ms;
    uint32_t stall_ms;
    uint32_t patience_ms;
    uint64_t rate_bytes_per_s;
    _Atomic uint32_t mirrors; /* origin_share() */
    /* clock_now_ms(); asked for by its own responses, and reported by other mirrors */
    _Atomic uint64_t asked_until_ms, reported_until_ms;
    struct origin_request_counters *count; /* own_count, or counters that outlive the origin */
    struct origin_request_counters own_count;
};

/* The scheme, host and port of one of its URLs? */
bool origin_is_home(const struct origin *o, const struct url *u);
/* The configuration names this host: it may have any address. */
bool origin_trusts_address(const struct origin *o, const struct url *u);
/* Sets the rules of a connection to this host: the proxy, the hosts that are reached without it,
 * and the allowed addresses. All code that connects for an origin calls this. A trusted host may
 * have any address. For others each address is checked, through a proxy only if `proxy_resolve`
 * says so. */
struct xfer_params;
void origin_set_way(const struct origin *o, bool trusted, struct xfer_params *w);

#endif
