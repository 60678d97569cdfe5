#include "server/plan/document.h"

#include <stdlib.h>

#include "common/os/newfile.h"

struct document_wait {
    struct document_wait **slot;
    struct answer *answer;
    struct body *body;
    void (*done)(void *arg, struct document *d, int rc);
    void *arg;
};

static struct document *complete(struct document_wait *w)
{
    struct document *d = NEW(struct document);

    d->answer = w->answer;
    d->fd = w->body->fd;
    d->bytes = w->body->bytes;
    d->size_bytes = (size_t)w->body->end;
    w->answer = NULL;
    return d;
}

static void on_document_progress(void *arg)
{
    struct document_wait *w = arg;
    struct document_wait was = *w;
    int rc = body_follow(w->body);

    if (rc != 0) {
        struct document *d = rc > 0 ? complete(w) : NULL;
        document_cancel(was.slot);
        was.done(was.arg, d, rc > 0 ? 0 : rc);
    }
}

void document_whole(struct cache *c, struct loop *l, struct answer *a, struct document_wait **slot,
                    void (*done)(void *arg, struct document *d, int rc), void *arg)
{
    struct document_wait *w = NEW(struct document_wait);

    CHECK(*slot == NULL);
    *w = (struct document_wait){.slot = slot, .answer = a, .done = done, .arg = arg};
    w->body = answer_body(c, a, l, 0, a->total_bytes);
    w->body->wake = on_document_progress;
    w->body->wake_arg = w;
    *slot = w;
    on_document_progress(w);
}

void document_cancel(struct document_wait **dp)
{
    struct document_wait *w = *dp;

    *dp = NULL;
    if (w != NULL) {
        body_close(&w->body);
        answer_release(&w->answer);
        free(w);
    }
}

int document_read(const struct document *d, struct buf *out, struct err *e)
{
    char *to = buf_room(out, d->size_bytes);
    int rc = 0;

    if (to == NULL) {
        return err_set(e, E_TOOBIG, "the index document is too large: it has %zu bytes",
                       d->size_bytes);
    }
    if (d->fd == -1) {
        memcpy(to, d->bytes, d->size_bytes);
    } else {
        rc = fd_pread_all(d->fd, to, d->size_bytes, 0, e);
    }
    buf_grew(out, rc == 0 ? d->size_bytes : 0);
    return rc;
}

void document_free(struct document **dp)
{
    struct document *d = *dp;

    *dp = NULL;
    if (d != NULL) {
        answer_release(&d->answer);
        free(d);
    }
}
