#include <stdlib.h>

#include "common/codec/url.h"
#include "common/codec/weblink.h"
#include "server/sync/http/http_engine.h"

enum { TRIES = 4, RETRY_MS = 300 };

static void begin(struct doc *d);

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    begin(arg);
}

static int verdict_of(int status, struct err *e)
{
    switch (status) {
    case 200:
        return 0;
    case 401:
    case 403:
    case 407:
        return err_set(e, E_DENIED, "the upstream answers %d", status);
    case 404:
    case 410:
        return err_set(e, E_NOTFOUND, "the upstream answers %d", status);
    case 429:
    case 503:
        return err_set(e, E_BUSY, "the upstream answers %d", status);
    default:
        return err_set(e, status >= 500 ? E_AGAIN : E_PROTOCOL, "the upstream answers %d", status);
    }
}

/* Only below the upstream itself: a list that goes on elsewhere is none. */
static void note_next(struct doc *d, struct slice link, struct slice url)
{
    struct slice to = weblink_next(link);
    struct buf b = BUF_INIT(16384);

    free(d->next);
    d->next = NULL;
    if (to.p != NULL && url_resolve(url, to, &b, NULL) == 0 &&
        slice_starts(buf_slice(&b), slice_str(d->g->base))) {
        d->next = mem_strdup(buf_cstr(&b));
    }
    buf_free(&b);
}

static int on_head(void *arg, const struct fetch_head *h)
{
    struct doc *d = arg;
    struct slice type = fetch_field(h, "content-type");
    struct arena a = {0};

    d->status = h->status;
    free(d->final_url);
    free(d->content_type);
    d->final_url = mem_strdup(arena_cstr(&a, h->url));
    d->content_type = mem_strdup(arena_cstr(&a, type.p != NULL ? type : SLICE("")));
    arena_fini(&a);
    if (h->why.p != NULL) {
        err_set(&d->no, verdict_of(h->status, NULL), "the upstream answers %d, " SLICE_FMT,
                h->status, SLICE_ARG(h->why));
    }
    note_next(d, fetch_field(h, "link"), h->url);
    if (h->content_length != LENGTH_UNKNOWN && h->content_length > d->body.max &&
        h->status == 200) {
        return err_set(&d->why, E_TOOBIG, "a list of %llu bytes",
                       (unsigned long long)h->content_length);
    }
    return 0;
}

static int on_body(void *arg, struct slice bytes)
{
    struct doc *d = arg;
    struct http_engine *g = d->g;

    g->list_bytes += bytes.n;
    if (d->status != 200) {
        return 0;
    }
    buf_adds(&d->body, bytes);
    if (d->body.rc != 0 || g->list_bytes > g->site->list_bytes_max) {
        return err_set(&d->why, E_TOOBIG, "the list has more than %zu bytes", d->body.n);
    }
    return 0;
}

static void on_done(void *arg, int rc, const struct err *why)
{
    struct doc *d = arg;

    d->fetch = NULL;
    if (d->why.code != 0) {
        rc = d->why.code; /* ours */
    } else if (rc == 0) {
        rc = verdict_of(d->status, &d->why);
        d->why = rc != 0 && d->no.code != 0 ? d->no : d->why;
    } else if (why != NULL) {
        d->why = *why;
    }
    if (sync_class_of(rc, false) == SYNC_RETRY && ++d->tries < TRIES) {
        struct timeval tv = {0, (suseconds_t)RETRY_MS * 1000 * (suseconds_t)d->tries};
        err_clear(&d->why);
        evtimer_add(d->retry, &tv);
        return;
    }
    d->why.code = rc;
    d->done(d, rc);
}

static const struct fetch_events events = {on_head, on_body, on_done};

static void begin(struct doc *d)
{
    struct fetch_want w = {.origin = d->g->site->origin,
                           .url = slice_str(d->url),
                           .via = slice_str(d->via),
                           .end = LENGTH_UNKNOWN,
                           .accept = slice_str(d->accept)};

    buf_clear(&d->body);
    err_clear(&d->no);
    d->fetch = fetch_start(d->g->site->fetcher, &w, &events, d);
}

struct doc *doc_ask(struct http_engine *g, const char *url, const char *accept, size_t max_bytes,
                    void (*done)(struct doc *d, int rc), void *arg)
{
    return doc_ask_via(g, url, SLICE_NONE, accept, max_bytes, done, arg);
}

struct doc *doc_ask_via(struct http_engine *g, const char *url, struct slice via,
                        const char *accept, size_t max_bytes, void (*done)(struct doc *d, int rc),
                        void *arg)
{
    struct arena a = {0};
    struct doc *d = NEW(struct doc);

    d->g = g;
    d->url = mem_strdup(url);
    d->accept = accept != NULL ? mem_strdup(accept) : NULL;
    d->via = via.p != NULL ? mem_strdup(arena_cstr(&a, via)) : NULL;
    arena_fini(&a);
    d->body = BUF_INIT(max_bytes);
    d->done = done;
    d->arg = arg;
    d->retry = evtimer_new(g->site->base, on_retry, d);
    CHECK(d->retry != NULL);
    list_push_back(&g->docs, &d->node);
    begin(d);
    return d;
}

void doc_free(struct doc **dp)
{
    struct doc *d = *dp;

    *dp = NULL;
    if (d == NULL) {
        return;
    }
    fetch_cancel(&d->fetch);
    event_free(d->retry);
    list_remove(&d->node);
    buf_free(&d->body);
    free(d->url);
    free(d->accept);
    free(d->via);
    free(d->final_url);
    free(d->content_type);
    free(d->next);
    free(d);
}
