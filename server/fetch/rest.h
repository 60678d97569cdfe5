/* rest.h - how long an origin asks for a pause: Retry-After, and spent budgets.
 *
 * owns     nothing
 * threads  any; reads a head, keeps nothing
 * source   RFC 9110 (10.2.3); draft-ietf-httpapi-ratelimit-headers, and the older fields
 *          RateLimit-Remaining and -Reset
 */
#ifndef SERVER_FETCH_REST_H
#define SERVER_FETCH_REST_H

#include "common/xfer/xfer.h"

bool rest_is_asked(int status); /* 429 or 503: there Retry-After counts */
/* 0: no pause. */
uint64_t rest_asked_ms(const struct xfer_head *h, uint64_t now_unix_s);

#endif
