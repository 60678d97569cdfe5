/* url.h - splits http and https URLs strictly, resolves them, and makes keys from them.
 *
 * A URL is ASCII without blanks and control bytes; it has a host, no user, and a path that begins
 * with '/'. Anything else is E_INVALID (another scheme E_UNSUPPORTED) and never repaired: two
 * parsers that repair differently are a security hole. Only url_resolve() is milder, because
 * people write links: it first encodes blanks and bytes past ASCII.
 *
 * owns     struct url borrows from the text that it was split from; text goes into the caller's
 *          buf
 * threads  any
 */
#ifndef COMMON_CODEC_URL_H
#define COMMON_CODEC_URL_H

#include "common/base/arena.h"
#include "common/base/buf.h"

struct url {
    bool tls;           /* https */
    bool ipv6;          /* host stood in brackets */
    uint16_t port;      /* as written, or 80 and 443 */
    struct slice host;  /* as written, without brackets */
    struct slice path;  /* raw; "/" when it was empty */
    struct slice query; /* after '?', raw; p == NULL: none */
};

MUST_USE int url_split(struct slice text, struct url *out,
                       struct err *e); /* a fragment is dropped */
void url_write(const struct url *u,
               struct buf *out); /* without the port if it is the scheme's default */
void url_write_origin(const struct url *u, struct buf *out); /* "https://host:8443" */
/* The target of `ref`, found in the document at `base` (RFC 3986 5.2): dot segments removed, no
 * fragment. */
MUST_USE int url_resolve(struct slice base, struct slice ref, struct buf *out, struct err *e);
bool url_same_host(const struct url *a,
                   const struct url *b); /* scheme, host (without case) and port */

/* In a sentence: replaces what follows a '?' up to the next blank by dots. Keys and signatures
 * are sent there. */
void url_hide_queries(char *text);

void url_encode(struct slice raw, struct buf *out); /* one segment or value: '/' is encoded too */
void url_encode_path(struct slice raw, struct buf *out);     /* a path of bytes: '/' stays */
struct slice url_encoded(struct slice raw, struct arena *a); /* the same, in the arena */
struct slice url_encoded_path(struct slice raw, struct arena *a);
/* decodes %XX once; false on a bad escape */
MUST_USE bool url_decode(struct slice text, struct buf *out);

/* The one form of a path from which keys are made. Escapes are decoded once, except %2F (upper
 * case) and %25, so that two targets of different meaning stay different. '//' stays. NUL and
 * other control bytes, bad escapes, a path without '/' in front, and '.' and '..' segments (also
 * between %2F) are E_INVALID. Paths are bytes, not UTF-8. */
MUST_USE int path_canonical(struct slice raw, struct buf *out, struct err *e);

#endif
