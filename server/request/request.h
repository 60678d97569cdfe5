/* request.h - one request that was not answered from the response cache: its copy of the request,
 * its plan, what it waits for.
 *
 * The exchange can die at any moment; steps on pools hold the call, not the exchange. So a call has
 * its own arena with its own copy of the request, and every slice of its plan points there. `x` is
 * NULL from the moment the client left.
 *
 * An answer's head waits for its first byte: a fetch may fail, or its origin become another, in
 * between. While nothing was sent nothing need be cut: the call asks the cache again, once, which
 * begins anew, has something stale, or knows what to say. Whoever has had a byte is cut, never
 * joined.
 *
 * owns     counted on its loop: one for the exchange until its end, one for every step that is out
 * threads  the loop; a step's worker reads only what the step was given
 */
#ifndef SERVER_REQUEST_REQUEST_H
#define SERVER_REQUEST_REQUEST_H

#include "server/plan/run.h"
#include "server/request/serve_loop.h"

struct document;

struct request_reader { /* takes the request's body, where request_body() does not */
    void (*data)(struct request *c, struct slice bytes, bool end);
    void (*gone)(struct request *c); /* the client has left */
};

struct request {
    unsigned holds;
    /* of memory for bodies: the call itself, with its copy of the request, and what it keeps */
    size_t counted_bytes;
    size_t made_bytes; /* of those, for its arena */
    struct serve_loop *serve_loop;
    struct exchange *x; /* NULL: gone */
    struct arena arena;
    struct http_req req;             /* copy */
    struct request_log *request_log; /* in the exchange's arena: not after x is NULL */
    struct repo_set *set;            /* held */
    struct repo *repo;
    struct slice path;    /* below the repo, raw */
    struct principal who; /* its own count */
    struct plan plan;
    struct plan_run run; /* makes the plan; has the facts that it rests on */
    struct list kept;    /* bytes that live as long as the call */
    struct cache_ask *ask;
    void (*on_answer)(struct request *c, struct answer *a);
    bool answered;
    bool asked_again;               /* what was answered failed before a byte of it was used */
    uint64_t generation;            /* the serve loop's when the call began */
    uint64_t repo_generation;       /* the repo's, likewise */
    struct document_wait *document; /* being gathered; or NULL */
    void (*on_document)(struct request *c, struct document *d);
    struct buf *body; /* the request's, while it is read; or NULL */
    void (*on_body)(struct request *c, int rc, struct slice body);
    struct {
        uint64_t stored_unix_s, fresh_until_unix_s;
    } index;                               /* of the document that is rewritten */
    struct deferred_start *deferred_start; /* the first byte is awaited; or NULL */
    const struct request_reader *reader;   /* or NULL */
    struct upload_flow *flow;              /* its own (put.c): a body being taken in; or NULL */
};

/* NULL: there is no memory for it (http/body_memory.h), and x has its 503. */
struct request *request_new(struct serve_loop *d, struct exchange *x, struct request_log *v,
                            struct repo *r, struct slice path);
struct request *request_hold(struct request *c);
void request_release(struct request **cp);
void request_advance(struct request *c); /* serve.c: plans, with the facts that have come */
/* serve.c: may the caller do what the plan says, to its subject? False: answered with 401 or
 * 403. */
bool request_allowed(struct request *c);
/* The origin has other bytes than the plan rested on: plans again, from what the origin says from
 * now on. False: that was done RESULTS_CHANGES times. */
bool request_changed(struct request *c);

/* What plans have made in its arena counts now. False: there is no memory for it, and the request
 * has its 503. */
bool request_count_made(struct request *c);
/* Takes a, a 200, and gives it as a whole (plan/document.h): ready() takes d, unless the client
 * leaves. What does not arrive whole is asked for again, once. */
void request_document(struct request *c, struct answer *a,
                      void (*ready)(struct request *c, struct document *d));

/* The request's own body, where it is small: at most max bytes, fn() has them for as long as the
 * call lives; or E_TOOBIG. Not called when the client left. */
void request_body(struct request *c, size_t max,
                  void (*fn)(struct request *c, int rc, struct slice body));
/* Asks the cache; fn owns a count of the answer. Not called when the client left, nor when the key
 * is too long: that is answered here. */
void request_lookup(struct request *c, const struct lookup *w,
                    void (*fn)(struct request *c, struct answer *a));

/* Sends a freshly resolved answer as soon as there is a byte of it; keep: for the next too, when
 * nothing forbids. Takes h. */
void request_send(struct request *c, struct cached_response *h, bool keep);

/* A blocking step: work() on the pool, then done() on the loop unless the client left meanwhile. */
struct step {
    struct job job;
    struct request *request;
    int rc;
    struct err why;
    void (*work)(struct step *s);
    void (*done)(struct step *s); /* not called when the client is gone */
    void (*free)(
        struct step
            *s); /* releases what the step has; the step itself is freed after it. May be NULL */
};
/* s is malloc()ed (as the first member of something), the call is held while it is out. */
void request_step(struct request *c, struct pool *p, struct step *s);

struct slice
request_cached_name(const struct request *c); /* cached_response_name() of what it asks for */

#endif
