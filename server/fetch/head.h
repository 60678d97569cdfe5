/* head.h - the head of an origin's final response, as the caller of a request gets it.
 *
 * owns     nothing: what it points to lives as long as the event that passes it
 * threads  the fetcher's loop
 */
#ifndef SERVER_FETCH_HEAD_H
#define SERVER_FETCH_HEAD_H

#include "common/hash/digest.h"
#include "server/http/msg.h"

struct origin_head {
    int status;              /* final */
    uint64_t content_length; /* of this message; LENGTH_UNKNOWN */
    uint64_t first, total; /* of a 206: checked against the request. total LENGTH_UNKNOWN for "*" */
    bool framed;           /* the body's end is marked; otherwise a cut looks like the end */
    bool ranges;           /* the response has Accept-Ranges: bytes, or is a 206 */
    const struct http_field *fields; /* lower-case names */
    size_t nfields;
    struct slice url; /* the final one, after redirects */
    /* a bucket's reason for a refusal: "AccessDenied: Access Denied"; or p == NULL */
    struct slice why;
};

/* The first field of that name, or p == NULL. */
struct slice origin_head_field(const struct origin_head *h, const char *name);
bool origin_head_is_html(const struct origin_head *h); /* by its Content-Type */
/* The SHA-256 of the whole object in this head: Repr-Digest, Digest (before RFC 9530), a registry's
 * Docker-Content-Digest, or a bucket's checksum. False: the head has none. */
MUST_USE bool origin_head_digest(const struct origin_head *h, struct digest *out);

#endif
