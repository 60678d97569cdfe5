/* request.h - one request that the response cache did not answer: its copy of the request head, its
 * plan, and what it waits for.
 *
 * An exchange can end at any moment. Steps on pools hold the request, not the exchange, so a
 * request has its own arena with its own copy of the head, and every slice of its plan points
 * there. `x` is NULL once the client has disconnected.
 *
 * The head of an answer is only sent with its first byte, because a fetch may fail, or its origin
 * may change, before that. As long as nothing was sent, the request can ask the cache again, once;
 * the cache then starts a new fetch, serves a stale object, or has an error to report. A client
 * that has received a byte is cut off instead: parts of two answers are never joined.
 *
 * owns     counted on its loop: one for the exchange until its end, one for every step that is out
 * threads  the loop; a step's worker only reads what the step was given
 */
#ifndef SERVER_REQUEST_REQUEST_H
#define SERVER_REQUEST_REQUEST_H

#include "server/plan/run.h"
#include "server/request/serve_loop.h"

struct document;

struct request_reader { /* takes the request's body, where request_body() does not */
    void (*data)(struct request *c, struct slice bytes, bool end);
    void (*gone)(struct request *c); /* the client has disconnected */
};

struct request {
    unsigned holds;
    /* Memory counted for it: the request with its copy of the head, and the bodies that it
     * keeps. */
    size_t counted_bytes;
    size_t made_bytes; /* the part of it for its arena */
    struct serve_loop *serve_loop;
    struct exchange *x; /* NULL: the client has disconnected */
    struct arena arena;
    struct http_req req;             /* copy */
    struct request_log *request_log; /* in the exchange's arena: invalid once x is NULL */
    struct repo_set *set;            /* held */
    struct repo *repo;
    struct slice path;    /* below the repo, raw */
    struct principal who; /* with its own count */
    struct plan plan;
    struct plan_run run; /* makes the plan, and has the results that the plan is based on */
    struct list kept;    /* bytes that live as long as the request */
    struct cache_ask *ask;
    void (*on_answer)(struct request *c, struct answer *a);
    bool answered;
    bool asked_again;               /* the first answer failed before a byte of it was used */
    uint64_t generation;            /* the serve loop's when the request began */
    uint64_t repo_generation;       /* the repo's at the same time */
    struct document_wait *document; /* being read as a whole; or NULL */
    void (*on_document)(struct request *c, struct document *d);
    struct buf *body;          /* the request's body, while it is read; or NULL */
    struct slice control_body; /* the same, once the plan has read it; p == NULL: it has not */
    void (*on_body)(struct request *c, int rc, struct slice body);
    struct {
        uint64_t stored_unix_s, fresh_until_unix_s;
    } index;                               /* of the document that is rewritten */
    struct deferred_start *deferred_start; /* waits for the first byte of an answer; or NULL */
    const struct request_reader *reader;   /* or NULL */
    /* private to put.c: a body that is being stored; or NULL */
    struct upload_flow *flow;
    /* private to relay.c: another mirror answers; or NULL */
    struct relay_flow *relay;
};

/* NULL: there is no memory for it (http/body_memory.h), and x was answered with 503. */
struct request *request_new(struct serve_loop *d, struct exchange *x, struct request_log *v,
                            struct repo *r, struct slice path);
struct request *request_hold(struct request *c);
void request_release(struct request **cp);
void request_advance(struct request *c); /* serve.c: plans, with the results so far */
/* serve.c: may the caller do what the plan says, to its subject? False: answered with 401 or
 * 403. */
bool request_allowed(struct request *c);
/* The origin has other bytes than the plan assumed: plans again, from what the origin says from now
 * on. False: that was done RESULTS_CHANGES times. */
bool request_changed(struct request *c);

/* Counts what plans have made in its arena. False: there is no memory for it, and the request was
 * answered with 503. */
bool request_count_made(struct request *c);
/* Takes a, a 200, and reads it as a whole (plan/document.h). ready() takes d; it is not called when
 * the client disconnects. A document that does not arrive completely is requested again, once. */
void request_document(struct request *c, struct answer *a,
                      void (*ready)(struct request *c, struct document *d));

/* Reads the request's own body, at most max bytes. fn() gets the bytes, which live as long as the
 * request, or E_TOOBIG. It is not called when the client disconnects. */
void request_body(struct request *c, size_t max,
                  void (*fn)(struct request *c, int rc, struct slice body));
/* What the request's Range says of where to begin with an object that is not here. The Range is one
 * of the framed bytes, if f is not NULL. */
void request_hint(const struct http_req *req, const struct framing *f, struct lookup *w);
/* Asks the cache; fn owns a count of the answer. It is not called when the client disconnects, nor
 * when the key is too long: that is answered here. */
void request_lookup(struct request *c, const struct lookup *w,
                    void (*fn)(struct request *c, struct answer *a));

/* Sends a freshly resolved answer as soon as its first byte is present. keep: stores it for later
 * requests, if nothing forbids that. Takes h. */
void request_send(struct request *c, struct cached_response *h, bool keep);

/* A blocking step: work() runs on the pool, then done() on the loop, unless the client has
 * disconnected. */
struct step {
    struct job job;
    struct request *request;
    int rc;
    struct err why;
    void (*work)(struct step *s);
    void (*done)(struct step *s); /* not called when the client has disconnected */
    void (*free)(
        struct step
            *s); /* releases what the step has; the step itself is freed after it. May be NULL */
};
/* s is malloc()ed (as the first member of a struct). The request is held while the step is out. */
void request_step(struct request *c, struct pool *p, struct step *s);

struct slice
request_cached_name(const struct request *c); /* the cached_response_name() of what it requests */

#endif
