/* ask.c - one small document of the core: its head, a node. */
#include <stdio.h>
#include <stdlib.h>

#include "server/sync/mirrord/core.h"

enum { TRIES = 4, RETRY_MS = 300 };

static void begin(struct ask *a);

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    begin(arg);
}

int core_refused(int status, struct err *e)
{
    switch (status) {
    case 401:
    case 403:
    case 407:
        return err_set(e, E_DENIED, "the core answers %d: it wants a token that may read the tree",
                       status);
    case 404:
    case 410:
        return err_set(e, E_NOTFOUND,
                       "the core answers %d: no mirrord, or no such tree is published there",
                       status);
    case 429:
    case 503:
        return err_set(e, E_BUSY, "the core answers %d", status);
    default:
        return err_set(e, status >= 500 ? E_AGAIN : E_PROTOCOL, "the core answers %d", status);
    }
}

static int on_head(void *arg, const struct fetch_head *h)
{
    struct ask *a = arg;

    a->status = h->status;
    if (h->status == 304 && a->etag[0] != '\0') {
        return 0;
    }
    if (h->status != 200) {
        return core_refused(h->status, &a->why);
    }
    if (h->content_length != LENGTH_UNKNOWN && h->content_length > a->body.max) {
        return err_set(&a->why, E_TOOBIG, "a document of %llu bytes",
                       (unsigned long long)h->content_length);
    }
    return 0;
}

static int on_body(void *arg, struct slice bytes)
{
    struct ask *a = arg;
    struct core *g = a->g;

    g->wire_bytes += bytes.n;
    buf_adds(&a->body, bytes);
    if (a->body.rc != 0 || g->wire_bytes > g->site->list_bytes_max) {
        return err_set(&a->why, E_TOOBIG, "the core's tree is larger than it may be");
    }
    return 0;
}

static void on_done(void *arg, int rc, const struct err *why)
{
    struct ask *a = arg;

    a->fetch = NULL;
    if (a->why.code != 0) {
        rc = a->why.code; /* ours */
    } else if (rc != 0 && why != NULL) {
        a->why = *why;
    }
    if (sync_class_of(rc, false) == SYNC_RETRY && ++a->tries < TRIES) {
        struct timeval tv = {0, (suseconds_t)RETRY_MS * 1000 * (suseconds_t)a->tries};
        err_clear(&a->why);
        evtimer_add(a->retry, &tv);
        return;
    }
    a->why.code = rc;
    a->done(a, rc);
}

static void begin(struct ask *a)
{
    static const struct fetch_events events = {on_head, on_body, on_done};
    struct fetch_want w = {.origin = a->g->site->origin,
                           .url = slice_str(a->url),
                           .end = LENGTH_UNKNOWN,
                           .accept = slice_str(a->accept),
                           .if_none_match = a->etag[0] != '\0' ? slice_str(a->etag) : SLICE_NONE};

    buf_clear(&a->body);
    a->fetch = fetch_start(a->g->site->fetcher, &w, &events, a);
}

struct ask *ask_start(struct core *g, char *url, const char *accept, const struct digest *etag,
                      size_t max_bytes, void (*done)(struct ask *a, int rc), void *arg)
{
    struct ask *a = NEW(struct ask);
    char hex[DIGEST_HEX + 1];

    a->g = g;
    a->url = url;
    a->accept = accept;
    if (etag != NULL) {
        digest_format(etag, hex);
        snprintf(a->etag, sizeof a->etag, "\"%s\"", hex);
    }
    a->body = BUF_INIT(max_bytes);
    a->done = done;
    a->arg = arg;
    a->retry = evtimer_new(g->site->base, on_retry, a);
    CHECK(a->retry != NULL);
    list_push_back(&g->asks, &a->node);
    begin(a);
    return a;
}

void ask_free(struct ask **ap)
{
    struct ask *a = *ap;

    *ap = NULL;
    if (a == NULL) {
        return;
    }
    fetch_cancel(&a->fetch);
    event_free(a->retry);
    list_remove(&a->node);
    buf_free(&a->body);
    free(a->url);
    free(a);
}
