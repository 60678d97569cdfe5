/* frontend.h - the ways in: one for each root that a protocol's clients insist on (/v2/, say), and
 * one for all other paths.
 *
 * A frontend knows whose a request is, what is nobody's there, and in which words its clients read
 * a no. From the plan to the body nobody asks which it was.
 */
#ifndef SERVER_REQUEST_FRONTEND_H
#define SERVER_REQUEST_FRONTEND_H

#include "server/gate/gate.h"
#include "server/request/request.h"

struct frontend {
    const char *root; /* "/v2": that path and all below it come in here. Of the front: NULL */
    /* Health and the like: answered when no other connection is. NULL: nothing is. */
    bool (*vital)(const struct http_req *req);
    bool by_target; /* resolved answers are kept by the whole target (response_cache.h) */
    /* Whose it is; of no repo: nobody's. May take a token out of the request's path. */
    struct route (*route)(struct serve_loop *d, struct exchange *x);
    /* What is no repo's: a page of ours, or a no. */
    void (*answer)(struct serve_loop *d, struct exchange *x, struct request_log *v,
                   const struct route *to);
    /* Of what is no repo's: does it count against the caller's limits? */
    bool (*counted)(const struct http_req *req);
    void (*refuse_token)(struct serve_loop *d, struct exchange *x, const char *why); /* 401 */
    void (*refuse_rate_limited)(struct exchange *x, const struct gate_decision *g);  /* 429 */
    /* The challenge of a 401 about a repo, added to *r: with which token to come again, to read or
     * to publish. */
    void (*challenge)(const struct http_req *req, const struct conf *conf, bool publish,
                      struct arena *a, struct http_reply *r);
    /* The body of an answer that is none: *r has its status, and is given the body's type. why ends
     * in no newline. */
    struct slice (*words)(const struct http_req *req, struct slice why, struct arena *a,
                          struct http_reply *r);
};

#endif
