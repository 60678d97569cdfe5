/* freshness.h - how long an answer is fresh, as the origin and the repo's rule say (RFC 9111 4.2,
 * RFC 5861).
 *
 * freshness_read() parses the header fields of a response; freshness_judge() and the others decide
 * from the stored object what may be served.
 *
 * owns     nothing
 * threads  pure functions; time is an argument
 */
#ifndef SERVER_CACHE_FRESHNESS_H
#define SERVER_CACHE_FRESHNESS_H

#include "server/cache/object.h"

struct freshness { /* what the origin said */
    /* no-store, private, Vary: *, or a Vary of too many fields. Any other Vary separates variants
     * (variant.h). */
    bool no_store;
    bool must_revalidate;
    /* no-store was present, even if must-understand beside it allows what is understood */
    bool forbidden;
    bool reported; /* the origin said how long; else it is a guess or the default */
    uint64_t age_s;
    uint64_t fresh_until_unix_s;
    uint32_t swr_s;
    uint32_t sie_s;
};

/* fields: of a 200, 206 or 304. w: the lookup whose targeted fields count (lookup.h); NULL: only
 * Cache-Control does. default_ttl_s applies when the fields say nothing. Invalid or contradictory
 * values make the answer stale. */
void freshness_read(const struct http_field *fields, size_t nfields, const struct lookup *w,
                    uint64_t now_unix_s, uint32_t default_ttl_s, struct freshness *out);

/* Does Cache-Control name this field (in lower case) in no-cache="..." or private="..."? Then only
 * an answer that the origin has just given or confirmed may carry it (RFC 9111 5.2.2.4,
 * 5.2.2.7). */
bool freshness_withholds(const struct http_field *fields, size_t nfields, struct slice name);

/* Is this the requested object? An expected digest decides; without one, the origin that it came
 * from does. An object that another origin had under this name, before the configuration changed,
 * does not match. */
bool object_answers(const struct object *o, const struct lookup *w);

enum verdict_fresh {
    FRESH,    /* serve it */
    STALE_OK, /* serve it, revalidate it in the background */
    STALE,    /* ask the origin first */
};
enum verdict_fresh freshness_judge(const struct object *o, const struct lookup *w,
                                   uint64_t now_unix_s);
/* The origin is in trouble: may the old object be served? */
bool freshness_allows_stale_on_error(const struct object *o, const struct lookup *w,
                                     uint64_t now_unix_s);
/* The origin is slow: may the old object be served in the meantime? Not where a response of the
 * origin is required. */
bool freshness_allows_stale_on_delay(const struct object *o, const struct lookup *w,
                                     uint64_t now_unix_s);
/* When freshness_judge() stops saying FRESH; UINT64_MAX for immutable. */
uint64_t freshness_until(const struct object *o, const struct lookup *w);
/* May an answer with this freshness be kept for others at all? */
bool freshness_keeps(const struct freshness *f, const struct lookup *w);

#endif
