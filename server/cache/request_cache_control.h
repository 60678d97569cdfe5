/* request_cache_control.h - what a client's Cache-Control asks of a cache (RFC 9111 5.2.1).
 *
 * Of no account for immutable objects: pip sends no-cache with every piece of a wheel. no-store is
 * not heard: an answer that one client may not have kept is still the one that all the others come
 * for.
 *
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
    bool only_cached;     /* 504 rather than a question to the origin */
};

/* Without a Cache-Control field all is zero: nothing is asked. What is not understood is not
 * asked. */
void request_cache_control_read(const struct http_req *req, struct request_cache_control *out);
/* An answer of that age which stays fresh for so long: is it not new enough for the client? refresh
 * aside. */
bool request_cache_control_refuses(const struct request_cache_control *d, uint64_t age_s,
                                   uint64_t fresh_s);

#endif
