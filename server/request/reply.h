/* reply.h - turns a resolved answer into the reply to this request (304, 206, 412, 416, HEAD), and
 * words all errors.
 *
 * threads  the loop of the exchange
 */
#ifndef SERVER_REQUEST_REPLY_H
#define SERVER_REQUEST_REPLY_H

#include "server/request/request.h"

/* The reply that a resolved answer (response.h) gives to this request; *body may be NULL. Borrows
 * h, which outlives the body. */
const struct http_reply *reply_word(struct exchange *x, struct request_log *v,
                                    struct cached_response *h, struct body **body);
/* Sends that reply. The request log holds h until the end. */
void reply_send(struct exchange *x, struct request_log *v, struct cached_response *h);
/* Replies with an answer of the cache that is not a 200. */
void reply_status(struct request *c, const struct answer *a);
/* Replies with an error of the origin, the disk or this server: a status for the code, and the
 * sentence. */
void reply_trouble(struct request *c, int rc, const struct err *why);
const char *reply_cache_status(enum cache_state s);

/* Replies with an error in the form that the path's clients read. r has the status and the fields
 * so far; why does not end in a newline. */
void reply_failure(struct request *c, struct http_reply *r, struct slice why);

/* Plain text for people: "what, why, what to do". */
void reply_text(struct exchange *x, int status, struct slice text);
/* A document of ours: a type and bytes (copied). */
void reply_bytes(struct exchange *x, int status, struct slice content_type, struct slice bytes);
/* An HTML page of ours, with a policy that lets it load nothing from elsewhere. */
void reply_page(struct exchange *x, struct slice html, struct slice policy);
/* "scheme://host" as the client reaches us: public_url, else by the request. In the arena. */
struct slice reply_base_url(const struct http_req *req, const struct conf *conf, struct arena *a);

#endif
