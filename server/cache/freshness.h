/* freshness.h - how long an answer is good, by the origin's word and by the rule's (RFC 9111 4.2,
 * RFC 5861).
 *
 * threads  pure functions; time is an argument
 */
#ifndef SERVER_CACHE_FRESHNESS_H
#define SERVER_CACHE_FRESHNESS_H

#include "server/cache/object.h"

struct freshness { /* what the origin said */
    /* no-store, private, or Vary: *, or a Vary of too many fields. Any other Vary tells answers
     * apart (variant.h). */
    bool no_store;
    bool must_revalidate;
    /* no-store was said, even if must-understand beside it allows what is understood */
    bool forbidden;
    bool reported; /* the origin said how long; else it is a guess or the default */
    uint64_t age_s;
    uint64_t fresh_until_unix_s;
    uint32_t swr_s;
    uint32_t sie_s;
};

/* fields: of a 200, 206 or 304. w: whose targets count (lookup.h); NULL: Cache-Control alone does.
 * default_ttl_s when they say nothing. Invalid or contradicting values are stale. */
void freshness_read(const struct http_field *fields, size_t nfields, const struct lookup *w,
                    uint64_t now_unix_s, uint32_t default_ttl_s, struct freshness *out);

/* Does Cache-Control name this field (in small messages) in no-cache="..." or private="..."? Then
 * only the answer that the origin has just given or confirmed may have it (RFC 9111 5.2.2.4,
 * 5.2.2.7). */
bool freshness_withholds(const struct http_field *fields, size_t nfields, struct slice name);

/* Is this the object that is wanted at all? By its digest where one is promised, else by where it
 * came from: what another origin had under the name (the configuration was changed) is none of this
 * one's. */
bool object_answers(const struct object *o, const struct lookup *w);

enum verdict_fresh {
    FRESH,    /* serve it */
    STALE_OK, /* serve it, revalidate it in the background */
    STALE,    /* ask the origin first */
};
enum verdict_fresh freshness_judge(const struct object *o, const struct lookup *w,
                                   uint64_t now_unix_s);
/* The origin is in trouble: may the old one be served? */
bool freshness_allows_stale_on_error(const struct object *o, const struct lookup *w,
                                     uint64_t now_unix_s);
/* The origin takes its time: may the old one be served meanwhile? Not where somebody insists on the
 * origin's word. */
bool freshness_allows_stale_on_delay(const struct object *o, const struct lookup *w,
                                     uint64_t now_unix_s);
/* When freshness_judge() stops saying FRESH; UINT64_MAX for immutable. */
uint64_t freshness_until(const struct object *o, const struct lookup *w);
/* May an answer with this freshness be kept for others at all? */
bool freshness_keeps(const struct freshness *f, const struct lookup *w);

#endif
