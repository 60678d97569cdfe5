#include "server/serve/call.h"

#include <stdlib.h>

#include "server/plan/document.h"
#include "server/serve/entrance.h"
#include "server/serve/refusal.h"
#include "server/serve/reply.h"

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

enum { CALL_BYTES = 16 << 10 }; /* beside the copy of the request */

static size_t bytes_of(const struct http_req *req)
{
    size_t n = CALL_BYTES + req->target.n + (req->nfields + 1) * sizeof *req->fields;

    for (size_t i = 0; i < req->nfields; i++) {
        n += req->fields[i].name.n + req->fields[i].value.n;
    }
    return n;
}

static bool call_count(struct call *c, size_t more_bytes)
{
    c->counted_bytes += more_bytes;
    if (exchange_keep(c->x, c->counted_bytes, BODY_IN_USE)) {
        return true;
    }
    refuse_memory(c->x);
    return false;
}

bool call_count_made(struct call *c)
{
    size_t made = c->arena.used_bytes + c->run.known_bytes;
    size_t more = made > c->made_bytes ? made - c->made_bytes : 0;

    c->made_bytes += more;
    return more == 0 || call_count(c, more);
}

struct kept {
    struct list node;
    struct buf bytes;
};

static struct slice call_keep(struct call *c, struct buf *b)
{
    struct kept *k = NEW(struct kept);

    k->bytes = *b;
    *b = BUF_INIT(0);
    list_push_back(&c->kept, &k->node);
    return buf_slice(&k->bytes);
}

static void drop_kept(struct call *c)
{
    struct list *n;

    while ((n = list_pop_front(&c->kept)) != NULL) {
        struct kept *k = LIST_ITEM(n, struct kept, node);
        buf_free(&k->bytes);
        free(k);
    }
}

/* --- the body of a request, where it is small and says what is wanted --- */

static void body_end(struct call *c, int rc)
{
    struct buf *b = c->body;
    struct slice bytes;

    c->body = NULL;
    /* Facts point into it from now on; and where it is let go, the call goes on. */
    if (c->x != NULL) {
        c->counted_bytes += rc == 0 ? b->cap : 0;
        (void)exchange_keep(c->x, c->counted_bytes, BODY_IN_USE);
    }
    bytes = rc == 0 ? call_keep(c, b) : SLICE_NONE;
    buf_free(b);
    free(b);
    c->on_body(c, rc, bytes);
}

static void body_gone(struct call *c)
{
    if (c->body != NULL) {
        buf_free(c->body);
        free(c->body);
        c->body = NULL;
    }
}

static void body_data(struct call *c, struct slice bytes, bool end)
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

void call_body(struct call *c, size_t max, void (*fn)(struct call *c, int rc, struct slice body))
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

struct opening {
    struct call *call; /* not held: the call cancels us when the client leaves */
    struct hot *hot;
    const struct http_reply *reply;
    struct body *body;
};

static void open_with(struct call *c, struct hot *h, const struct http_reply *r, struct body *b)
{
    c->visit->hot = h;
    exchange_reply(c->x, r, b);
}

/* What was answered failed before a byte of it was used: plans again, once. False: that was done already. */
static bool again(struct call *c)
{
    if (c->asked_again) {
        return false;
    }
    c->asked_again = true;
    plan_run_forget_rows(&c->run);
    call_advance(c);
    return true;
}

static void opening_cancel(struct opening **op)
{
    struct opening *o = *op;

    if (o == NULL) {
        return;
    }
    *op = NULL;
    if (o->body != NULL) {
        body_close(&o->body);
    }
    hot_release(&o->hot);
    free(o);
}

static void opening_look(void *arg)
{
    struct opening *o = arg;
    struct call *c = o->call;
    struct body *b = o->body;
    struct err why;
    uint64_t upto;
    int rc = b->ops->poll(b, &upto);

    if (rc == 0 && upto == b->off && b->off != b->end) {
        return; /* woken again when there is more */
    }
    if (rc == 0) {
        open_with(c, o->hot, o->reply, b);
        o->hot = NULL;
        o->body = NULL;
    }
    opening_cancel(&c->opening);
    if (rc != 0 && !again(c)) {
        err_set(&why, rc, "the origin's bytes did not come");
        reply_trouble(c, rc, &why);
    }
}

static void opening_await(struct call *c, struct hot *h)
{
    struct body *b;
    const struct http_reply *r = reply_word(c->x, c->visit, h, &b);
    struct opening *o;

    if (b == NULL || b->ops->poll == NULL) {
        open_with(c, h, r, b);
        return;
    }
    CHECK(c->opening == NULL);
    o = c->opening = NEW(struct opening);
    *o = (struct opening){c, h, r, b};
    b->wake = opening_look;
    b->wake_arg = o;
    opening_look(o);
}

void call_send(struct call *c, struct hot *h, bool keep)
{
    /* Resolved before somebody forgot a key: it may be that very key's old answer. */
    keep = keep && h->name.n != 0 && h->fresh_until_unix_s > c->desk->loop->unix_s &&
           c->generation == c->desk->generation && hot_serves(h, &c->req);
    if (keep) {
        hot_add(c->desk->hot, h);
    }
    opening_await(c, h);
}

/* --- its life --- */

static void on_gone(void *arg)
{
    struct call *c = arg;

    c->x = NULL;
    cache_cancel(&c->ask);
    document_cancel(&c->document);
    opening_cancel(&c->opening);
    plan_run_leave(&c->run);
    body_gone(c);
    if (c->reader != NULL) {
        c->reader->gone(c);
    }
}

static void on_data(void *arg, struct slice bytes, bool end)
{
    struct call *c = arg;

    if (c->body != NULL) {
        body_data(c, bytes, end);
    } else if (c->reader != NULL) {
        c->reader->data(c, bytes, end);
    }
}

/* Bodies alone are kept so that they may end. */
static void on_shed(void *arg)
{
    struct call *c = arg;

    body_gone(c);
    refuse_memory(c->x);
}

struct call *call_new(struct desk *d, struct exchange *x, struct visit *v, struct repo *r,
                      struct slice path)
{
    static const struct exchange_events events = {
        .on_data = on_data, .on_gone = on_gone, .on_shed = on_shed};
    const struct http_req *req = exchange_req(x);
    size_t counted_bytes = bytes_of(req);
    struct call *c;

    if (!exchange_keep(x, counted_bytes, BODY_IN_USE)) {
        refuse_memory(x);
        return NULL;
    }
    c = NEW(struct call);
    c->holds = 1;
    c->counted_bytes = c->made_bytes = counted_bytes;
    list_init(&c->kept);
    c->desk = d;
    c->x = x;
    c->generation = d->generation;
    copy_request(&c->arena, req, &c->req);
    c->visit = v;
    c->set = repo_set_share(d->set);
    c->repo = r;
    c->repo_generation = r->generation;
    c->path = slice_of(c->req.target.p + (path.p - req->target.p), path.n);
    gate_hold(d->parts->gate, &v->who, &c->who);
    c->run = (struct plan_run){.planner = d->planner,
                               .repo = r,
                               .generation = c->repo_generation,
                               .req = &c->req,
                               .path = c->path,
                               .who = &c->who,
                               .arena = &c->arena,
                               .plan = &c->plan};
    plan_run_init(&c->run);
    v->call = c; /* this count is given back at the exchange's end */
    exchange_on(x, &events, c);
    return c;
}

struct call *call_hold(struct call *c)
{
    c->holds++;
    return c;
}

void call_release(struct call **cp)
{
    struct call *c = *cp;

    *cp = NULL;
    CHECK(c->holds > 0);
    if (--c->holds != 0) {
        return;
    }
    CHECK(c->ask == NULL && c->document == NULL && c->opening == NULL && c->flow == NULL);
    CHECK(c->body == NULL);
    gate_release(c->desk->parts->gate, &c->who);
    repo_set_release(&c->set);
    plan_run_fini(&c->run);
    drop_kept(c);
    arena_fini(&c->arena);
    free(c);
}

bool call_changed(struct call *c)
{
    unsigned changes = c->run.facts.changes + 1;

    if (changes > FACTS_CHANGES) {
        return false;
    }
    /* A listing of this very second is old, too. */
    c->run.facts = (struct facts){.changes = changes, .since_unix_s = c->desk->loop->unix_s + 1};
    call_advance(c);
    return true;
}

static void on_answer(void *arg, struct answer *a)
{
    struct call *c = arg;

    c->ask = NULL;
    c->answered = true;
    c->on_answer(c, a);
}

void call_want(struct call *c, const struct want *w, void (*fn)(struct call *c, struct answer *a))
{
    struct cache_ask *ask;
    struct want mine;

    call_hold(c); /* the answer may come, and the exchange end, before cache_want() returns */
    c->on_answer = fn;
    c->answered = false;
    mine = *w;
    mine.client = c->who.client;
    ask = cache_want(c->desk->parts->cache, c->desk->loop, &mine, on_answer, c);
    if (!c->answered) {
        c->ask = ask;
    }
    call_release(&c);
}

static void on_document(void *arg, struct document *d, int rc)
{
    struct call *c = arg;
    struct err why;

    if (rc == 0) {
        c->on_document(c, d);
    } else if (!again(c)) {
        err_set(&why, rc, "the origin's document did not arrive whole");
        reply_trouble(c, rc, &why);
    }
}

void call_document(struct call *c, struct answer *a,
                   void (*ready)(struct call *c, struct document *d))
{
    c->on_document = ready;
    document_whole(c->desk->parts->cache, c->desk->loop, a, &c->document, on_document, c);
}

static void step_work(struct job *j)
{
    struct step *s = CONTAINER_OF(j, struct step, job);
    s->work(s);
}

static void step_done(struct job *j)
{
    struct step *s = CONTAINER_OF(j, struct step, job);
    struct call *c = s->call;

    if (c->x != NULL) {
        s->done(s);
    }
    if (s->free != NULL) {
        s->free(s);
    }
    free(s);
    call_release(&c);
}

void call_step(struct call *c, struct pool *p, struct step *s)
{
    s->call = call_hold(c);
    s->job.work = step_work;
    s->job.done = step_done;
    s->job.reply = c->desk->loop->mail;
    pool_submit(p, &s->job, c->who.client);
}

struct slice call_hot_name(const struct call *c)
{
    return hot_name(&c->req, c->repo, c->path, c->visit->entrance->by_target);
}
