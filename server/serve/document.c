#include "server/serve/document.h"

#include <stdlib.h>

#include "common/os/newfile.h"

struct document {
    struct call *call; /* not held: the call cancels us when the client leaves */
    struct answer *answer;
    struct body *body;
    const struct document_work *what;
    void *arg;
};

struct read_step {
    struct step step; /* first: call_step() frees it */
    struct answer *answer;
    struct body *body;
    const struct document_work *what;
    void *arg;
    struct buf bytes;
};

static void work(struct step *s)
{
    struct read_step *r = (struct read_step *)s;
    size_t n = (size_t)r->body->end;
    struct slice all;

    if (r->body->fd == -1) {
        all = slice_of(r->body->bytes, n);
    } else {
        char *to = buf_room(&r->bytes, n);
        if (to == NULL) {
            s->rc = err_set(&s->why, E_TOOBIG, "the index document has %zu bytes", n);
            return;
        }
        s->rc = fd_pread_all(r->body->fd, to, n, 0, &s->why);
        if (s->rc != 0) {
            return;
        }
        buf_grew(&r->bytes, n);
        all = buf_slice(&r->bytes);
    }
    s->rc = r->what->work(r->arg, all, &s->why);
}

static void done(struct step *s)
{
    struct read_step *r = (struct read_step *)s;
    r->what->done(r->arg, s->call, s->rc, &s->why);
}

static void release(struct step *s)
{
    struct read_step *r = (struct read_step *)s;

    r->what->free(r->arg);
    body_close(&r->body);
    answer_release(&r->answer);
    buf_free(&r->bytes);
}

static void finish(struct document **dp)
{
    struct document *d = *dp;

    *dp = NULL;
    body_close(&d->body);
    answer_release(&d->answer);
    free(d);
}

static void fail(struct document *d, int rc, const struct err *why)
{
    struct call *c = d->call;

    c->document = NULL;
    if (!call_again(c)) {
        d->what->done(d->arg, c, rc, why);
    }
    d->what->free(d->arg);
    finish(&d);
}

static void look(void *arg)
{
    struct document *d = arg;
    struct call *c = d->call;
    struct read_step *r;
    uint64_t upto = d->body->end;
    struct err why = {0};
    int rc = 0;

    while (d->body->ops->poll != NULL) {
        rc = d->body->ops->poll(d->body, &upto);
        if (rc != 0) {
            err_set(&why, rc, "the origin's document did not arrive whole");
            fail(d, rc, &why);
            return;
        }
        if (d->body->end != LENGTH_UNKNOWN && upto >= d->body->end) {
            break;
        }
        if (upto == d->body->off) {
            return; /* wake comes, but only after a poll that found nothing new */
        }
        d->body->off = upto;
    }
    d->body->wake = NULL;
    r = NEW(struct read_step);
    r->answer = d->answer;
    r->body = d->body;
    r->what = d->what;
    r->arg = d->arg;
    r->bytes = BUF_INIT((size_t)c->set->conf->cache.document_bytes);
    r->step.work = work;
    r->step.done = done;
    r->step.free = release;
    d->answer = NULL;
    d->body = NULL;
    c->document = NULL;
    finish(&d);
    call_step(c, c->desk->daemon->readers, &r->step);
}

void document_read(struct call *c, struct answer *a, const struct document_work *w, void *arg)
{
    struct document *d = NEW(struct document);

    CHECK(c->document == NULL);
    d->call = c;
    d->answer = a;
    d->what = w;
    d->arg = arg;
    d->body = answer_body(c->desk->daemon->cache, a, c->desk->loop, 0, a->total_bytes);
    d->body->wake = look;
    d->body->wake_arg = d;
    c->document = d;
    look(d);
}

void document_cancel(struct document **dp)
{
    if (*dp != NULL) {
        (*dp)->what->free((*dp)->arg);
        finish(dp);
    }
}
