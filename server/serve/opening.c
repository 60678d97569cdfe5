#include "server/serve/opening.h"

#include <stdlib.h>

#include "server/serve/reply.h"

struct opening {
    struct call *call; /* not held: the call cancels us when the client leaves */
    struct hot *hot;
    const struct http_reply *reply;
    struct body *body;
};

static void begin(struct call *c, struct hot *h, const struct http_reply *r, struct body *b)
{
    c->visit->hot = h;
    exchange_reply(c->x, r, b);
}

static void look(void *arg)
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
        begin(c, o->hot, o->reply, b);
        o->hot = NULL;
        o->body = NULL;
    }
    opening_cancel(&c->opening);
    if (rc != 0 && !call_again(c)) {
        err_set(&why, rc, "the origin's bytes did not come");
        reply_trouble(c, rc, &why);
    }
}

static void await(struct call *c, struct hot *h)
{
    struct body *b;
    const struct http_reply *r = reply_word(c->x, c->visit, h, &b);
    struct opening *o;

    if (b == NULL || b->ops->poll == NULL) {
        begin(c, h, r, b);
        return;
    }
    CHECK(c->opening == NULL);
    o = c->opening = NEW(struct opening);
    *o = (struct opening){c, h, r, b};
    b->wake = look;
    b->wake_arg = o;
    look(o);
}

void opening_send(struct call *c, struct hot *h, bool keep)
{
    /* Resolved before somebody forgot a key: it may be that very key's old answer. */
    keep = keep && h->name.n != 0 && h->fresh_until_unix_s > c->desk->loop->unix_s &&
           c->generation == c->desk->generation && hot_serves(h, &c->req);
    if (keep) {
        hot_add(c->desk->hot, h);
    }
    await(c, h);
}

void opening_cancel(struct opening **op)
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
