/* request_cache_control.h - what a client's Cache-Control requests of a cache (RFC 9111 5.2.1).
 *
 * It does not count for immutable objects, because pip sends no-cache with every piece of a wheel.
 * no-store is ignored: an answer that one client must not keep is still the one that all other
 * clients request.
 *
 * owns     nothing
 * threads  plain data, pure functions
 */
#ifndef SERVER_CACHE_REQUEST_CACHE_CONTROL_H
#define SERVER_CACHE_REQUEST_CACHE_CONTROL_H

#include "server/http/msg.h"

struct request_cache_control {
    bool refresh; /* no-cache, max-age=0 */
    bool bounded; /* max-age */
    uint32_t max_age_s;
    uint32_t min_fresh_s;
    uint32_t max_stale_s; /* UINT32_MAX: however stale */
    bool only_cached;     /* only-if-cached: a 504 instead of a request to the origin */
};

/* Without a Cache-Control field all members are zero. Directives that are not understood are
 * ignored. */
void request_cache_control_read(const struct http_req *req, struct request_cache_control *out);
/* Is an answer of that age, which stays fresh for so long, too old for the client? `refresh` is not
 * considered. */
bool request_cache_control_refuses(const struct request_cache_control *d, uint64_t age_s,
                                   uint64_t fresh_s);

#endif
