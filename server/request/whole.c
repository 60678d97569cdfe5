#include "server/request/whole.h"

#include <stdlib.h>

#include "server/plan/document.h"
#include "server/request/reply.h"
#include "server/request/response.h"

static void send_with(struct request *c, struct answer *a, uint64_t size_bytes)
{
    struct slice name = request_cached_name(c);
    bool keep = a->blob != NULL && !cache_state_is_stale(a->state);
    struct cached_response *h = response_of_object(c, name, c->plan.lookup.key, a, NULL);

    h->valid.total_bytes = size_bytes;
    request_send(c, h, keep);
}

static void know(struct request *c, const struct digest *d)
{
    c->plan.lookup.digest_known = true;
    c->plan.lookup.digest = *d;
}

/* --- an origin that does not say what its bytes are called: they are hashed --- */

struct naming {
    struct step step;
    struct document *doc;
    struct buf bytes;
    struct digest digest;
};

static void name_work(struct step *s)
{
    struct naming *n = (struct naming *)s;

    s->rc = document_read(n->doc, &n->bytes, &s->why);
    digest_of(buf_slice(&n->bytes), &n->digest);
}

static void name_done(struct step *s)
{
    struct naming *n = (struct naming *)s;
    struct request *c = s->request;

    if (s->rc != 0) {
        reply_trouble(c, s->rc, &s->why);
        return;
    }
    know(c, &n->digest);
    send_with(c, answer_hold(n->doc->answer), n->doc->size_bytes);
}

static void name_free(struct step *s)
{
    struct naming *n = (struct naming *)s;

    document_free(&n->doc);
    buf_free(&n->bytes);
}

static void on_whole_body(struct request *c, struct document *d)
{
    struct naming *n;

    if (d->answer->digest_known) {
        know(c, &d->answer->digest);
        send_with(c, answer_hold(d->answer), d->size_bytes);
        document_free(&d);
        return;
    }
    n = NEW(struct naming);
    n->doc = d;
    n->bytes = BUF_INIT((size_t)c->set->conf->cache.document_bytes);
    n->step.work = name_work;
    n->step.done = name_done;
    n->step.free = name_free;
    request_step(c, c->serve_loop->deps->readers, &n->step);
}

void whole_send(struct request *c, struct answer *a)
{
    if (a->blob != NULL) {
        know(c, &a->digest);
        send_with(c, a, a->total_bytes);
    } else {
        request_document(c, a, on_whole_body);
    }
}
