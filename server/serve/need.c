#include "server/serve/need.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "server/repo/part.h"
#include "server/serve/document.h"
#include "server/serve/gather.h"
#include "server/serve/refusal.h"
#include "server/serve/reply.h"

void need_learn(struct call *c, const struct fact *f)
{
    c->facts.fact[c->facts.count++] = *f;
    call_advance(c);
}

/* --- rows, heads and entries: one blocking read --- */

struct row_step {
    struct step step;
    struct fact fact;
    struct slice repo;
    struct buf bytes;
    struct arena arena; /* of the entry's strings */
};

enum { ROW_BYTES = 1 << 20 };

static void row_work(struct step *s)
{
    struct row_step *r = (struct row_step *)s;

    s->rc =
        need_read(s->call->desk->parts->store, r->repo, &r->fact, &r->bytes, &r->arena, &s->why);
}

static void row_done(struct step *s)
{
    struct row_step *r = (struct row_step *)s;
    struct call *c = s->call;

    if (s->rc != 0) {
        log_error("serve.read_failed", "repo=%s why=\"%s\"", c->repo->name, s->why.text);
        reply_trouble(c, s->rc, &s->why);
        return;
    }
    r->fact.bytes = arena_copy(&c->arena, r->fact.bytes);
    r->fact.entry.path = arena_copy(&c->arena, r->fact.entry.path);
    r->fact.entry.target = arena_copy(&c->arena, r->fact.entry.target);
    need_learn(c, &r->fact);
}

static void row_free(struct step *s)
{
    struct row_step *r = (struct row_step *)s;
    buf_free(&r->bytes);
    arena_fini(&r->arena);
}

static void read_row(struct call *c)
{
    struct row_step *r = NEW(struct row_step);

    r->fact.need =
        c->plan.need; /* its slices are in the call's arena, and the step holds the call */
    r->repo = slice_str(c->repo->name);
    r->bytes = BUF_INIT(ROW_BYTES);
    r->step.work = row_work;
    r->step.done = row_done;
    r->step.free = row_free;
    call_step(c, c->desk->parts->readers, &r->step);
}

/* --- documents: through the cache like any other object --- */

struct document_step {
    struct step step;
    struct document *doc;
    struct fact fact;
    struct buf bytes;
};

static void document_work(struct step *s)
{
    struct document_step *d = (struct document_step *)s;
    s->rc = document_read(d->doc, &d->bytes, &s->why);
}

static void document_done(struct step *s)
{
    struct document_step *d = (struct document_step *)s;

    if (s->rc != 0) {
        reply_trouble(s->call, s->rc, &s->why);
        return;
    }
    d->fact.bytes =
        call_keep(s->call, &d->bytes); /* a copy of tens of megabytes would hold the loop */
    need_learn(s->call, &d->fact);
}

static void document_step_free(struct step *s)
{
    struct document_step *d = (struct document_step *)s;
    document_free(&d->doc);
    buf_free(&d->bytes);
}

static void on_whole(struct call *c, struct document *doc)
{
    struct document_step *d = NEW(struct document_step);

    d->doc = doc;
    d->fact.need = c->plan.need;
    d->bytes = BUF_INIT((size_t)c->set->conf->cache.document_bytes);
    d->step.work = document_work;
    d->step.done = document_done;
    d->step.free = document_step_free;
    call_step(c, c->desk->parts->readers, &d->step);
}

static void on_answer(struct call *c, struct answer *a)
{
    if (a->status == 404 || a->status == 410) {
        struct fact f = {.need = c->plan.need, .rc = E_NOTFOUND};
        answer_release(&a);
        need_learn(c, &f);
        return;
    }
    if (a->status != 200) {
        reply_status(c, a);
        answer_release(&a);
        return;
    }
    document_await(c, a, on_whole);
}

/* --- the request's own body, where it is small and says what is wanted --- */

static void end_body(struct call *c, int rc)
{
    struct buf *b = c->body;
    struct slice bytes;

    c->body = NULL;
    /* Facts point into it from now on; and where it is let go, the call goes on. */
    if (c->x != NULL) {
        (void)exchange_keep(c->x, c->counted_bytes + (rc == 0 ? b->cap : 0), BODY_IN_USE);
    }
    bytes = rc == 0 ? call_keep(c, b) : SLICE_NONE;
    buf_free(b);
    free(b);
    c->on_body(c, rc, bytes);
}

void need_body_data(struct call *c, struct slice bytes, bool end)
{
    buf_adds(c->body, bytes);
    if (!exchange_keep(c->x, c->counted_bytes + c->body->cap, BODY_MAY_END)) {
        need_body_gone(c);
        refuse_memory(c->x);
        return;
    }
    if (c->body->rc != 0 || end) {
        end_body(c, c->body->rc);
    }
}

void need_body_gone(struct call *c)
{
    if (c->body != NULL) {
        buf_free(c->body);
        free(c->body);
        c->body = NULL;
    }
}

void need_body(struct call *c, size_t max, void (*fn)(struct call *c, int rc, struct slice body))
{
    c->on_body = fn;
    c->body = NEW(struct buf);
    *c->body = BUF_INIT(max);
    if (!c->req.has_body || c->req.content_length == 0) {
        end_body(c, 0);
    } else if (c->req.content_length != LENGTH_UNKNOWN && c->req.content_length > max) {
        end_body(c, E_TOOBIG);
    } else {
        exchange_read(c->x);
    }
}

static void learn_body(struct call *c, int rc, struct slice body)
{
    struct fact f = {.need = c->plan.need, .rc = rc, .bytes = body};

    need_learn(c, &f);
}

static void learn_right(struct call *c)
{
    const struct need *n = &c->plan.need;
    struct fact f = {.need = *n, .rc = E_NOTFOUND};

    if (gate_allows(&c->who, slice_eqs(n->name, "publish") ? "publish" : "read", n->path)) {
        f.rc = 0;
    }
    need_learn(c, &f);
}

void need_resolve(struct call *c)
{
    if (c->facts.count == FACTS_MAX) {
        log_error("serve.plan_loops", "repo=%s path=" SLICE_FMT, c->repo->name, SLICE_ARG(c->path));
        reply_text(
            c->x, 500,
            SLICE("the plan for this path asks for more facts than allowed; please report it\n"));
        return;
    }
    if (c->plan.need.kind == NEED_DOCUMENT) {
        c->plan.need.want.document = true;
        call_want(c, &c->plan.need.want, on_answer);
    } else if (c->plan.need.kind == NEED_GATHER) {
        gather_need(c);
    } else if (c->plan.need.kind == NEED_BODY) {
        need_body(c, BODY_BYTES, learn_body);
    } else if (c->plan.need.kind == NEED_RIGHT) {
        learn_right(c);
    } else {
        read_row(c);
    }
}
