/* take.c - the bytes of one file, by their digest: whole, or from where they broke. */
#include <stdio.h>
#include <stdlib.h>

#include "server/sync/mirrord/core.h"

struct take {
    struct list node;
    struct core *g;
    struct take_events ev;
    void *arg;
    struct fetch *fetch;
    char *url;
    uint64_t size, have, got;
    struct err why; /* ours: says more than what fetch makes of it */
};

static void take_free(struct take *t)
{
    fetch_cancel(&t->fetch);
    list_remove(&t->node);
    free(t->url);
    free(t);
}

static int on_head(void *arg, const struct fetch_head *h)
{
    struct take *t = arg;
    uint64_t total = h->status == 206 ? h->total : h->content_length;
    int rc;

    if (h->status == 404 || h->status == 410) {
        return err_set(&t->why, E_NOTFOUND, "the core has let go of it");
    }
    if (h->status != 200 && h->status != 206) {
        return core_refused(h->status, &t->why);
    }
    if (total != LENGTH_UNKNOWN && total != t->size) {
        return err_set(&t->why, E_CORRUPT, "the core has it with another size than its tree says");
    }
    t->got = h->status == 206 ? t->have : 0;
    rc = t->ev.on_begin(t->arg, t->got, SLICE_NONE);
    return rc != 0 ? err_set(&t->why, rc, "given up here") : 0;
}

static int on_body(void *arg, struct slice bytes)
{
    struct take *t = arg;
    int rc;

    if (bytes.n > t->size - t->got) {
        return err_set(&t->why, E_CORRUPT, "the core sends more of it than its tree says");
    }
    t->got += bytes.n;
    rc = t->ev.on_body(t->arg, bytes);
    if (rc == TAKE_PAUSE) {
        return FETCH_PAUSE;
    }
    return rc != 0 ? err_set(&t->why, rc, "given up here") : 0;
}

static void on_done(void *arg, int rc, const struct err *why)
{
    static const struct take_got got = {.mtime_ns = SYNC_TIME_UNKNOWN};
    struct take *t = arg;

    t->fetch = NULL;
    if (t->why.code != 0) {
        rc = t->why.code;
    } else if (rc != 0 && why != NULL) {
        t->why = *why;
    } else if (rc == 0 && t->got != t->size) {
        rc = err_set(&t->why, E_NETWORK, "the answer was cut after %llu bytes",
                     (unsigned long long)t->got);
    }
    t->ev.on_done(t->arg, rc, &t->why, rc == 0 ? &got : NULL);
    take_free(t);
}

struct take *core_take(struct engine *eg, const struct take_want *w, const struct take_events *ev,
                       void *arg)
{
    static const struct fetch_events events = {on_head, on_body, on_done};
    struct core *g = (struct core *)eg;
    struct take *t = NEW(struct take);
    struct fetch_want f = {.origin = g->site->origin, .end = LENGTH_UNKNOWN};
    char hex[DIGEST_HEX + 1];
    size_t room = strlen(g->blobs) + sizeof hex;

    t->g = g;
    t->ev = *ev;
    t->arg = arg;
    t->size = w->entry->size_bytes;
    t->url = mem_new(room);
    digest_format(&w->entry->digest, hex);
    snprintf(t->url, room, "%s%s", g->blobs, hex);
    f.url = slice_str(t->url);
    if (w->have_bytes != 0 && w->have_bytes < t->size) { /* a digest vouches for both halves */
        f.first = t->have = w->have_bytes;
        f.end = t->size;
    }
    list_push_back(&g->takes, &t->node);
    t->fetch = fetch_start(g->site->fetcher, &f, &events, t);
    return t;
}

void core_take_resume(struct take *t)
{
    if (t->fetch != NULL) {
        fetch_resume(t->fetch);
    }
}

void core_take_cancel(struct take **tp)
{
    struct take *t = *tp;

    *tp = NULL;
    if (t != NULL) {
        take_free(t);
    }
}

void core_takes_cancel(struct core *g)
{
    LIST_EACH (&g->takes, it) {
        take_free(LIST_ITEM(it, struct take, node));
    }
}
