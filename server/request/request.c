/* request.c - the life of a request that the response cache did not answer.
 *
 * serve.c creates it when the head of a request has arrived. request_new() counts its memory and
 * copies the head, because the exchange may end at any moment. Then the adapter's plan is made
 * (plan/run.h). The plan may need rows, documents or a small request body; these are read, and the
 * plan is made again with the results. The final plan decides the next step: a lookup in the cache,
 * a file or a listing of a tree, an upload, or a text.
 *
 * The answer becomes a cached response, whose head is sent together with its first byte
 * (deferred_start). If the bytes fail before that, the request plans again, once, and after that
 * answers with an error. Later failures cut the answer off.
 *
 * When the client disconnects, `x` becomes NULL, and every wait is canceled. Steps on the pool run
 * to their end, and their results are dropped. The request is freed with its last count: one for
 * the exchange, one for each step.
 *
 * threads  the loop of the exchange; a step's work() runs on the pool
 */
#include "server/request/request.h"

#include <stdlib.h>

#include "server/plan/document.h"
#include "server/request/frontend.h"
#include "server/request/refusal.h"
#include "server/request/reply.h"

/* The exchange's arena dies with it; the plan's slices must not. */
static void copy_request(struct arena *a, const struct http_req *from, struct http_req *to)
{
    struct http_field *f = arena_alloc(a, (from->nfields + 1) * sizeof *f);
    struct sockaddr_storage *peer = ARENA_NEW(a, struct sockaddr_storage);

    *to = *from;
    to->arena = a;
    to->method_text = arena_copy(a, from->method_text);
    to->target = arena_copy(a, from->target);
    to->path = slice_first(to->target, from->path.n);
    if (from->query.p != NULL) {
        to->query = slice_from(to->target, to->target.n - from->query.n);
    }
    to->host = arena_copy(a, from->host);
    for (size_t i = 0; i < from->nfields; i++) {
        f[i].name = arena_copy(a, from->fields[i].name);
        f[i].value = arena_copy(a, from->fields[i].value);
    }
    to->fields = f;
    *peer = *from->peer;
    to->peer = peer;
}

enum { REQUEST_ARENA_BYTES = 16 << 10 }; /* beside the copy of the request */

static size_t bytes_of_request(const struct http_req *req)
{
    size_t n = REQUEST_ARENA_BYTES + req->target.n + (req->nfields + 1) * sizeof *req->fields;

    for (size_t i = 0; i < req->nfields; i++) {
        n += req->fields[i].name.n + req->fields[i].value.n;
    }
    return n;
}

static bool request_count(struct request *c, size_t more_bytes)
{
    c->counted_bytes += more_bytes;
    if (exchange_keep(c->x, c->counted_bytes, BODY_IN_USE)) {
        return true;
    }
    refuse_memory(c->x);
    return false;
}

bool request_count_made(struct request *c)
{
    size_t made = c->arena.used_bytes + c->run.known_bytes;
    size_t more = made > c->made_bytes ? made - c->made_bytes : 0;

    c->made_bytes += more;
    return more == 0 || request_count(c, more);
}

struct kept {
    struct list node;
    struct buf bytes;
};

static struct slice request_keep(struct request *c, struct buf *b)
{
    struct kept *k = NEW(struct kept);

    k->bytes = *b;
    *b = BUF_INIT(0);
    list_push_back(&c->kept, &k->node);
    return buf_slice(&k->bytes);
}

static void drop_kept(struct request *c)
{
    struct list *n;

    while ((n = list_pop_front(&c->kept)) != NULL) {
        struct kept *k = LIST_ITEM(n, struct kept, node);
        buf_free(&k->bytes);
        free(k);
    }
}

/* --- the body of a request, where it is small and says what is wanted --- */

static void body_end(struct request *c, int rc)
{
    struct buf *b = c->body;
    struct slice bytes;

    c->body = NULL;
    /* Facts point into it from now on; and where it is let go, the call goes on. */
    if (c->x != NULL) {
        c->counted_bytes += rc == 0 ? b->cap : 0;
        (void)exchange_keep(c->x, c->counted_bytes, BODY_IN_USE);
    }
    bytes = rc == 0 ? request_keep(c, b) : SLICE_NONE;
    buf_free(b);
    free(b);
    c->on_body(c, rc, bytes);
}

static void body_gone(struct request *c)
{
    if (c->body != NULL) {
        buf_free(c->body);
        free(c->body);
        c->body = NULL;
    }
}

static void body_data(struct request *c, struct slice bytes, bool end)
{
    buf_adds(c->body, bytes);
    if (!exchange_keep(c->x, c->counted_bytes + c->body->cap, BODY_MAY_END)) {
        body_gone(c);
        refuse_memory(c->x);
        return;
    }
    if (c->body->rc != 0 || end) {
        body_end(c, c->body->rc);
    }
}

void request_body(struct request *c, size_t max,
                  void (*fn)(struct request *c, int rc, struct slice body))
{
    c->on_body = fn;
    c->body = NEW(struct buf);
    *c->body = BUF_INIT(max);
    if (!c->req.has_body || c->req.content_length == 0) {
        body_end(c, 0);
    } else if (c->req.content_length != LENGTH_UNKNOWN && c->req.content_length > max) {
        body_end(c, E_TOOBIG);
    } else {
        exchange_read(c->x);
    }
}

/* --- an answer before its first byte --- */

struct deferred_start {
    struct request *request; /* not held: the call cancels us when the client leaves */
    struct cached_response *cached_response;
    const struct http_reply *reply;
    struct body *body;
};

static void open_with(struct request *c, struct cached_response *h, const struct http_reply *r,
                      struct body *b)
{
    c->request_log->cached_response = h;
    exchange_reply(c->x, r, b);
}

/* What was answered failed before a byte of it was used: plans again, once. False: that was done
 * already. */
static bool again(struct request *c)
{
    if (c->asked_again) {
        return false;
    }
    c->asked_again = true;
    plan_run_forget_rows(&c->run);
    request_advance(c);
    return true;
}

static void deferred_start_cancel(struct deferred_start **op)
{
    struct deferred_start *o = *op;

    if (o == NULL) {
        return;
    }
    *op = NULL;
    if (o->body != NULL) {
        body_close(&o->body);
    }
    cached_response_release(&o->cached_response);
    free(o);
}

static void deferred_start_look(void *arg)
{
    struct deferred_start *o = arg;
    struct request *c = o->request;
    struct body *b = o->body;
    struct err why;
    uint64_t upto;
    int rc = b->ops->poll(b, &upto);

    if (rc == 0 && upto == b->off && b->off != b->end) {
        return; /* woken again when there is more */
    }
    if (rc == 0) {
        open_with(c, o->cached_response, o->reply, b);
        o->cached_response = NULL;
        o->body = NULL;
    }
    deferred_start_cancel(&c->deferred_start);
    if (rc != 0 && !again(c)) {
        err_set(&why, rc, "the origin did not send the bytes");
        reply_trouble(c, rc, &why);
    }
}

static void deferred_start_await(struct request *c, struct cached_response *h)
{
    struct body *b;
    const struct http_reply *r = reply_word(c->x, c->request_log, h, &b);
    struct deferred_start *o;

    if (b == NULL || b->ops->poll == NULL) {
        open_with(c, h, r, b);
        return;
    }
    CHECK(c->deferred_start == NULL);
    o = c->deferred_start = NEW(struct deferred_start);
    *o = (struct deferred_start){c, h, r, b};
    b->wake = deferred_start_look;
    b->wake_arg = o;
    deferred_start_look(o);
}

void request_send(struct request *c, struct cached_response *h, bool keep)
{
    /* Resolved before somebody forgot a key: it may be that very key's old answer. */
    keep = keep && h->name.n != 0 && h->fresh_until_unix_s > c->serve_loop->loop->unix_s &&
           c->generation == c->serve_loop->generation && cached_response_serves(h, &c->req);
    if (keep) {
        response_cache_add(c->serve_loop->cached_response, h);
    }
    deferred_start_await(c, h);
}

/* --- its life --- */

static void on_request_gone(void *arg)
{
    struct request *c = arg;

    c->x = NULL;
    cache_cancel(&c->ask);
    document_cancel(&c->document);
    deferred_start_cancel(&c->deferred_start);
    plan_run_leave(&c->run);
    body_gone(c);
    if (c->reader != NULL) {
        c->reader->gone(c);
    }
}

static void on_request_data(void *arg, struct slice bytes, bool end)
{
    struct request *c = arg;

    if (c->body != NULL) {
        body_data(c, bytes, end);
    } else if (c->reader != NULL) {
        c->reader->data(c, bytes, end);
    }
}

/* Bodies alone are kept so that they may end. */
static void on_shed(void *arg)
{
    struct request *c = arg;

    body_gone(c);
    refuse_memory(c->x);
}

struct request *request_new(struct serve_loop *d, struct exchange *x, struct request_log *v,
                            struct repo *r, struct slice path)
{
    static const struct exchange_events events = {
        .on_data = on_request_data, .on_gone = on_request_gone, .on_shed = on_shed};
    const struct http_req *req = exchange_req(x);
    size_t counted_bytes = bytes_of_request(req);
    struct request *c;

    if (!exchange_keep(x, counted_bytes, BODY_IN_USE)) {
        refuse_memory(x);
        return NULL;
    }
    c = NEW(struct request);
    c->holds = 1;
    c->counted_bytes = c->made_bytes = counted_bytes;
    list_init(&c->kept);
    c->serve_loop = d;
    c->x = x;
    c->generation = d->generation;
    copy_request(&c->arena, req, &c->req);
    c->request_log = v;
    c->set = repo_set_share(d->set);
    c->repo = r;
    c->repo_generation = r->generation;
    c->path = slice_of(c->req.target.p + (path.p - req->target.p), path.n);
    gate_hold(d->deps->gate, &v->who, &c->who);
    c->run = (struct plan_run){.planner = d->planner,
                               .repo = r,
                               .generation = c->repo_generation,
                               .req = &c->req,
                               .path = c->path,
                               .who = &c->who,
                               .arena = &c->arena,
                               .plan = &c->plan};
    plan_run_init(&c->run);
    v->request = c; /* this count is given back at the exchange's end */
    exchange_on(x, &events, c);
    return c;
}

struct request *request_hold(struct request *c)
{
    c->holds++;
    return c;
}

void request_release(struct request **cp)
{
    struct request *c = *cp;

    *cp = NULL;
    CHECK(c->holds > 0);
    if (--c->holds != 0) {
        return;
    }
    CHECK(c->ask == NULL && c->document == NULL && c->deferred_start == NULL && c->flow == NULL &&
          c->relay == NULL);
    CHECK(c->body == NULL);
    gate_release(c->serve_loop->deps->gate, &c->who);
    repo_set_release(&c->set);
    plan_run_fini(&c->run);
    drop_kept(c);
    arena_fini(&c->arena);
    free(c);
}

bool request_changed(struct request *c)
{
    unsigned changes = c->run.results.changes + 1;

    if (changes > RESULTS_CHANGES) {
        return false;
    }
    /* A listing of this very second is old, too. */
    c->run.results =
        (struct results){.changes = changes, .since_unix_s = c->serve_loop->loop->unix_s + 1};
    request_advance(c);
    return true;
}

static void on_request_answer(void *arg, struct answer *a)
{
    struct request *c = arg;

    c->ask = NULL;
    c->answered = true;
    c->on_answer(c, a);
}

void request_hint(const struct http_req *req, const struct framing *f, struct lookup *w)
{
    bool suffix = false;

    w->hint_first = w->hint_suffix = 0;
    w->hint_end = LENGTH_UNKNOWN;
    if (req->method == METHOD_GET && range_peek(req, &w->hint_first, &w->hint_end, &suffix) &&
        suffix) {
        w->hint_suffix = w->hint_first;
        w->hint_first = 0;
        w->hint_end = LENGTH_UNKNOWN;
    }
    if (f != NULL) { /* framed, the end lies elsewhere than the origin's */
        w->hint_suffix = 0;
        w->hint_first = f->plain(w->hint_first);
        w->hint_end = w->hint_end != LENGTH_UNKNOWN ? f->plain(w->hint_end) : LENGTH_UNKNOWN;
    }
}

void request_lookup(struct request *c, const struct lookup *w,
                    void (*fn)(struct request *c, struct answer *a))
{
    struct cache_ask *ask;
    struct lookup mine;

    request_hold(c); /* the answer may come, and the exchange end, before cache_lookup() returns */
    c->on_answer = fn;
    c->answered = false;
    mine = *w;
    /* What the cluster's bucket has is brought here for everybody. */
    mine.client = c->plan.kind == PLAN_BLOB ? CLIENT_PROGRAM
                  : w->asker == CLIENT_ASKS ? c->who.client
                                            : w->client;
    ask =
        cache_lookup(c->serve_loop->deps->cache, c->serve_loop->loop, &mine, on_request_answer, c);
    if (!c->answered) {
        c->ask = ask;
    }
    request_release(&c);
}

static void on_document(void *arg, struct document *d, int rc)
{
    struct request *c = arg;
    struct err why;

    if (rc == 0) {
        c->on_document(c, d);
    } else if (!again(c)) {
        err_set(&why, rc, "the origin's document did not arrive completely");
        reply_trouble(c, rc, &why);
    }
}

void request_document(struct request *c, struct answer *a,
                      void (*ready)(struct request *c, struct document *d))
{
    c->on_document = ready;
    document_whole(c->serve_loop->deps->cache, c->serve_loop->loop, a, &c->document, on_document,
                   c);
}

static void step_work(struct job *j)
{
    struct step *s = CONTAINER_OF(j, struct step, job);
    s->work(s);
}

static void step_done(struct job *j)
{
    struct step *s = CONTAINER_OF(j, struct step, job);
    struct request *c = s->request;

    if (c->x != NULL) {
        s->done(s);
    }
    if (s->free != NULL) {
        s->free(s);
    }
    free(s);
    request_release(&c);
}

void request_step(struct request *c, struct pool *p, struct step *s)
{
    s->request = request_hold(c);
    s->job.work = step_work;
    s->job.done = step_done;
    s->job.reply = c->serve_loop->loop->mail;
    pool_submit(p, &s->job, c->who.client);
}

struct slice request_cached_name(const struct request *c)
{
    return cached_response_name(&c->req, c->repo, c->path, c->request_log->frontend->by_target);
}
