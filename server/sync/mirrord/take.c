/* take.c - the bytes of one file, by their digest: whole, from where they broke, or in parts (patching.c). */
#include <stdio.h>
#include <stdlib.h>

#include "server/sync/mirrord/core.h"

static void take_free(struct take *t)
{
    fetch_cancel(&t->fetch);
    sheaves_leave(t);
    patching_free(&t->patching);
    list_remove(&t->node);
    free(t->url);
    free(t);
}

void take_done(struct take *t, int rc)
{
    struct take_got got = {.mtime_ns = SYNC_TIME_UNKNOWN, .beside_bytes = t->beside};

    t->why.code = rc;
    t->ev.on_done(t->arg, rc, &t->why, rc == 0 ? &got : NULL);
    take_free(t);
}

static int on_head(void *arg, const struct fetch_head *h)
{
    struct take *t = arg;
    uint64_t total = h->status == 206 ? h->total : h->content_length;
    int rc = 0;

    if (h->status == 404 || h->status == 410) {
        return err_set(&t->why, E_NOTFOUND, "the core has let go of it");
    }
    if (h->status != 200 && h->status != 206) {
        return core_refused(h->status, &t->why);
    }
    if (total != LENGTH_UNKNOWN && total != t->size) {
        return err_set(&t->why, E_CORRUPT, "the core has it with another size than its tree says");
    }
    if (t->patching != NULL && h->status != 206) {
        patching_give_up(t->g, &t->digest);
        return err_set(&t->why, E_AGAIN, "the core gives no ranges");
    }
    if (t->patching == NULL) {
        t->got = h->status == 206 ? t->got : 0;
        rc = t->ev.on_begin(t->arg, t->got, slice_str(t->validator));
    }
    return rc != 0 ? err_set(&t->why, rc, "given up here") : 0;
}

static int on_body(void *arg, struct slice bytes)
{
    struct take *t = arg;
    int rc;

    if (bytes.n > t->end - t->got) {
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
    struct take *t = arg;

    t->fetch = NULL;
    if (t->why.code != 0) {
        rc = t->why.code;
    } else if (rc != 0 && why != NULL) {
        t->why = *why;
    } else if (rc == 0 && t->got != t->end) {
        rc = err_set(&t->why, E_NETWORK, "the answer was cut after %llu bytes",
                     (unsigned long long)t->got);
    }
    if (rc == 0 && t->patching != NULL) {
        patching_went_on(t);
    } else {
        take_done(t, rc);
    }
}

static void begin(struct take *t, uint64_t end)
{
    static const struct fetch_events events = {on_head, on_body, on_done};
    struct fetch_want f = {
        .origin = t->g->site->origin, .url = slice_str(t->url), .end = LENGTH_UNKNOWN};

    t->end = end;
    if (t->got != 0 || end != t->size) { /* a digest vouches for all parts */
        f.first = t->got;
        f.end = end;
    }
    t->fetch = fetch_start(t->g->site->fetcher, &f, &events, t);
}

void take_whole(struct take *t)
{
    patching_free(&t->patching);
    begin(t, t->size);
}

void take_part(struct take *t, uint64_t end)
{
    begin(t, end);
}

struct take *core_take(struct engine *eg, const struct take_want *w, const struct take_events *ev,
                       void *arg)
{
    struct core *g = (struct core *)eg;
    struct take *t = NEW(struct take);
    size_t room = strlen(g->blobs) + DIGEST_HEX + 1;

    t->g = g;
    t->ev = *ev;
    t->arg = arg;
    t->size = w->entry->size_bytes;
    t->digest = w->entry->digest;
    digest_format(&t->digest, t->validator);
    if (w->have_bytes < t->size && slice_eqs(w->validator, t->validator)) {
        t->got = w->have_bytes;
    }
    t->url = mem_new(room);
    snprintf(t->url, room, "%s%s", g->blobs, t->validator);
    list_push_back(&g->takes, &t->node);
    if (patching_fits(g, w)) {
        patching_start(t, w);
    } else if (sheaves_fit(g, w)) {
        sheaves_add(t);
    } else {
        take_whole(t);
    }
    return t;
}

void core_take_resume(struct take *t)
{
    if (t->fetch != NULL) {
        fetch_resume(t->fetch);
    } else if (t->patching != NULL) {
        patching_resume(t);
    } else {
        sheaves_resume(t);
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
