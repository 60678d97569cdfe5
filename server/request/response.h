/* response.h - makes a cached response of what a plan led to: the fields of a 200 that later
 * requests may get, too (response_cache.h).
 *
 * Fields that depend on the request are added when it is sent (reply.h). All text is copied into
 * the response's arena.
 *
 * owns     each call returns one count
 * threads  the loop of the request
 */
#ifndef SERVER_REQUEST_RESPONSE_H
#define SERVER_REQUEST_RESPONSE_H

#include "server/request/request.h"

/* Takes one of answer and blob; with neither, the caller sets bytes. key: the lookup's, or the
 * blob's path. */
struct cached_response *response_of_object(struct request *c, struct slice name, struct slice key,
                                           struct answer *a, struct blob *b);
/* Of a document made by this server. Holds r. */
struct cached_response *response_of_rendering(struct request *c, struct slice key,
                                              struct rendering *r);
/* Of a HEAD that the plan alone can answer (repo.h: known). */
struct cached_response *response_known(struct request *c);
/* Of the plan's own text, a PLAN_REPLY that may be kept. worded: the body made of that text
 * (repo.h: plan.word), which is held; or NULL. */
struct cached_response *response_of_text(struct request *c, struct rendering *worded);

/* The number of fields taken from the origin. The others are reserved for the plan's and for ours:
 * type, ETag, ranges, freshness, age and the like, and what an adapter's answer() adds (three at
 * most). A Date longer than ORIGIN_DATE_MAX is ignored. */
enum { OUR_FIELDS = 14, ORIGIN_DATE_MAX = 40 };
enum { ORIGIN_FIELDS_MAX = REPLY_FIELDS - PLAN_FIELDS - OUR_FIELDS };
/* True for a field that says how long an answer is fresh: it is only passed on where ours do not
 * say so. */
bool response_is_freshness(struct slice name);

#endif
