/* frontend.h - the entry points of requests: one for each root that a protocol's clients require
 * (/v2/, for example), and one for all other paths.
 *
 * A frontend decides which repo a request is for, answers what is for no repo, and words errors in
 * the form that its clients read. The code between plan and body does not depend on it.
 *
 * owns     nothing: frontends are constant
 * threads  the loop
 */
#ifndef SERVER_REQUEST_FRONTEND_H
#define SERVER_REQUEST_FRONTEND_H

#include "server/gate/gate.h"
#include "server/request/request.h"

struct frontend {
    /* "/v2": that path and all below it belong to this frontend. NULL: the front */
    const char *root;
    /* Is it a health check or the like? Those are answered when no other connection is. NULL: none
     * are. */
    bool (*vital)(const struct http_req *req);
    bool by_target; /* resolved answers are stored by the whole target (response_cache.h) */
    /* Finds the repo of a request; none: the request is for no repo. May remove a token from the
     * request's path. */
    struct route (*route)(struct serve_loop *d, struct exchange *x);
    /* Answers a request for no repo: a page of ours, or an error. */
    void (*answer)(struct serve_loop *d, struct exchange *x, struct request_log *v,
                   const struct route *to);
    /* For requests to no repo: does this one count against the caller's limits? */
    bool (*counted)(const struct http_req *req);
    void (*refuse_token)(struct serve_loop *d, struct exchange *x, const char *why); /* 401 */
    void (*refuse_rate_limited)(struct exchange *x, const struct gate_decision *g);  /* 429 */
    /* Adds to *r the challenge of a 401 about a repo: which token is needed, for reading or for
     * publishing. */
    void (*challenge)(const struct http_req *req, const struct conf *conf, bool publish,
                      struct arena *a, struct http_reply *r);
    /* The body of an error. *r has its status and gets the body's type. why does not end in a
     * newline. */
    struct slice (*words)(const struct http_req *req, struct slice why, struct arena *a,
                          struct http_reply *r);
};

#endif
