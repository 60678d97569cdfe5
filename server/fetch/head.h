/* head.h - the head of an origin's final answer, as the caller of a fetch is given it: what was
 * sent, and what it tells.
 *
 * threads  the fetcher's loop; what it points to lives as long as the event that gives it
 */
#ifndef SERVER_FETCH_HEAD_H
#define SERVER_FETCH_HEAD_H

#include "common/hash/digest.h"
#include "server/http/msg.h"

struct origin_head {
    int status;              /* final */
    uint64_t content_length; /* of this message; LENGTH_UNKNOWN */
    uint64_t first, total; /* of a 206: checked against the request. total LENGTH_UNKNOWN for "*" */
    bool framed;           /* the body's end is marked: without that a cut looks like the end */
    bool ranges;           /* Accept-Ranges: bytes was said, or this is a 206 */
    const struct http_field *fields; /* lower-case names */
    size_t nfields;
    struct slice url; /* final one, after redirects */
    struct slice why; /* a bucket's word for its no: "AccessDenied: Access Denied"; or p == NULL */
};

/* First field of that name, or p == NULL. */
struct slice origin_head_field(const struct origin_head *h, const char *name);
bool origin_head_is_html(const struct origin_head *h); /* by its type */
/* SHA-256 of the whole object in this head: Repr-Digest, Digest (before RFC 9530), a registry's
 * Docker-Content-Digest, or a bucket's checksum. False: not told. */
MUST_USE bool origin_head_digest(const struct origin_head *h, struct digest *out);

#endif
