#include "server/serve/need.h"

#include <stdlib.h>

#include "server/serve/refusal.h"

static void end_body(struct call *c, int rc)
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
