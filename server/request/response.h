/* response.h - what a plan comes to, as an answer that whoever asks next may be given, too
 * (response_cache.h): the fields of a 200.
 *
 * What depends on the request is added when it is sent (reply.h). All text is copied into the
 * answer's arena.
 *
 * owns     each returns one count
 * threads  the loop of the call
 */
#ifndef SERVER_REQUEST_RESPONSE_H
#define SERVER_REQUEST_RESPONSE_H

#include "server/request/request.h"

/* Takes one of answer, blob; with neither, bytes is the caller's to fill. key: the want's, or the
 * blob's path. */
struct cached_response *response_of_object(struct request *c, struct slice name, struct slice key,
                                           struct answer *a, struct blob *b);
/* A document of our own. Holds r. */
struct cached_response *response_of_rendering(struct request *c, struct slice key,
                                              struct rendering *r);
/* What a HEAD is told by the plan alone (repo.h: known). */
struct cached_response *response_known(struct request *c);
/* The plan's own text, a PLAN_REPLY that may be kept. worded: its body made of that text (repo.h:
 * plan.word), is held; or NULL. */
struct cached_response *response_of_text(struct request *c, struct rendering *worded);

/* The origin's fields go so far, the rest is for the plan's and for ours: type, ETag, ranges,
 * freshness, age and the like, and what an adapter's answer() adds (three at most). A Date that is
 * longer is none. */
enum { OUR_FIELDS = 14, ORIGIN_DATE_MAX = 40 };
enum { ORIGIN_FIELDS_MAX = REPLY_FIELDS - PLAN_FIELDS - OUR_FIELDS };
/* One that says how long it is good: passed on only where ours do not say it. */
bool response_is_freshness(struct slice name);

#endif
