/* reply.h - how an answer is worded: fields of a 200, then what this request makes of it (304, 206, 412, 416, HEAD). */
#ifndef SERVER_SERVE_REPLY_H
#define SERVER_SERVE_REPLY_H

#include "server/serve/call.h"

/* A resolved answer of a plan: fields without those that depend on the request. Takes one of answer, blob; bytes stays the
 * caller's to fill. key: the want's, or the blob's path. */
struct hot *reply_resolve(struct call *c, struct slice name, struct slice key, struct answer *a,
                          struct blob *b);
/* The same for a document of our own. Holds r. */
struct hot *reply_resolve_rendering(struct call *c, struct slice key, struct rendering *r);
/* What a HEAD is told by the plan alone (repo.h: known). */
struct hot *reply_resolve_known(struct call *c);
/* The plan's own text, a PLAN_REPLY that may be kept. */
struct hot *reply_resolve_text(struct call *c);
/* What the resolved answer is to this request; *body may be NULL. Borrows h, which outlives the body. */
const struct http_reply *reply_word(struct exchange *x, struct visit *v, struct hot *h,
                                    struct body **body);
/* ... and sends it. The visit holds h until the end. */
void reply_send(struct exchange *x, struct visit *v, struct hot *h);
/* An answer of the cache without a 200. */
void reply_status(struct call *c, const struct answer *a);
/* The origin, the disk or we ourselves could not: a status by the code, and the sentence. */
void reply_trouble(struct call *c, int rc, const struct err *why);
const char *reply_cache_status(enum cache_state s);

/* An answer that is none, in the words that its path's clients read: r has the status, and fields so far; why ends in no newline. */
void reply_failure(struct call *c, struct http_reply *r, struct slice why);

/* Plain text for people: "what, why, what to do". */
void reply_text(struct exchange *x, int status, struct slice text);
/* One of ours: 200 with a type and bytes (copied). */
void reply_bytes(struct exchange *x, int status, struct slice content_type, struct slice bytes);
/* HTML of ours: with a policy that lets it load nothing from elsewhere. */
void reply_page(struct exchange *x, struct slice html, struct slice policy);

#endif
