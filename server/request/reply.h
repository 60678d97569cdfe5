/* reply.h - how an answer is worded: what this request makes of a resolved one (304, 206, 412, 416,
 * HEAD), and all that are none. */
#ifndef SERVER_REQUEST_REPLY_H
#define SERVER_REQUEST_REPLY_H

#include "server/request/request.h"

/* What a resolved answer (response.h) is to this request; *body may be NULL. Borrows h, which
 * outlives the body. */
const struct http_reply *reply_word(struct exchange *x, struct request_log *v,
                                    struct cached_response *h, struct body **body);
/* ... and sends it. The visit holds h until the end. */
void reply_send(struct exchange *x, struct request_log *v, struct cached_response *h);
/* An answer of the cache without a 200. */
void reply_status(struct request *c, const struct answer *a);
/* The origin, the disk or we ourselves could not: a status by the code, and the sentence. */
void reply_trouble(struct request *c, int rc, const struct err *why);
const char *reply_cache_status(enum cache_state s);

/* An answer that is none, in the words that its path's clients read: r has the status, and fields
 * so far; why ends in no newline. */
void reply_failure(struct request *c, struct http_reply *r, struct slice why);

/* Plain text for people: "what, why, what to do". */
void reply_text(struct exchange *x, int status, struct slice text);
/* One of ours: 200 with a type and bytes (copied). */
void reply_bytes(struct exchange *x, int status, struct slice content_type, struct slice bytes);
/* HTML of ours: with a policy that lets it load nothing from elsewhere. */
void reply_page(struct exchange *x, struct slice html, struct slice policy);
/* "scheme://host" as the client reaches us: public_url, else by the request. In the arena. */
struct slice reply_base_url(const struct http_req *req, const struct conf *conf, struct arena *a);

#endif
