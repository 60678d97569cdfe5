#include "server/serve/texts.h"

#include <stdlib.h>

#include "server/admin/admin.h"
#include "server/serve/own.h"
#include "server/serve/refusal.h"
#include "server/serve/reply.h"

enum { TEXT_BYTES = 16 << 20, NAME_BYTES = 16 << 10 };

struct text {
    struct buf name;
    struct buf bytes;
    uint64_t made_ms; /* when somebody last began to make it; 0: never */
};

struct texts {
    struct lock lock;
    struct text text[TEXTS_MAX];
};

struct texts *texts_open(void)
{
    struct texts *t = NEW(struct texts);

    lock_init(&t->lock, LOCK_LEAF);
    for (size_t i = 0; i < TEXTS_MAX; i++) {
        t->text[i].name = BUF_INIT(NAME_BYTES);
        t->text[i].bytes = BUF_INIT(TEXT_BYTES);
    }
    return t;
}

void texts_close(struct texts **tp)
{
    struct texts *t = *tp;

    *tp = NULL;
    if (t == NULL) {
        return;
    }
    for (size_t i = 0; i < TEXTS_MAX; i++) {
        buf_free(&t->text[i].name);
        buf_free(&t->text[i].bytes);
    }
    lock_fini(&t->lock);
    free(t);
}

/* --- the texts ---------------------------------------------------------------------------------------------------------- */

static bool wants_openmetrics(const struct http_req *req)
{
    return slice_starts(slice_trim(http_req_field(req, "accept")),
                        SLICE("application/openmetrics-text"));
}

/* The page of those who showed a token has a link to log out. */
static bool is_logged_in(struct exchange *x)
{
    const struct visit *v = exchange_user(x);

    return v->who.token != NULL;
}

static void make(struct desk *d, struct exchange *x, struct buf *out)
{
    const struct http_req *req = exchange_req(x);
    struct slice base = own_base_url(req, d->set->conf, exchange_arena(x));

    if (slice_eqs(req->path, "/metrics")) {
        metrics_text(d->daemon, wants_openmetrics(req), out);
    } else if (slice_eqs(req->path, "/-/status.json")) {
        status_json(d->daemon, base, false, out);
    } else if (slice_eqs(req->path, "/-/tunasync.json")) {
        tunasync_json(d->daemon, out);
    } else {
        status_page(d->daemon, base, is_logged_in(x), out);
    }
}

static void name_of(struct desk *d, struct exchange *x, struct buf *name)
{
    const struct http_req *req = exchange_req(x);
    bool metrics = slice_eqs(req->path, "/metrics");

    buf_adds(name, req->path);
    buf_byte(name, metrics && wants_openmetrics(req));
    buf_byte(name, slice_eqs(req->path, "/") && is_logged_in(x));
    if (!metrics) {
        buf_adds(name, own_base_url(req, d->set->conf, exchange_arena(x)));
    }
}

static void reply(struct exchange *x, struct slice bytes)
{
    const struct http_req *req = exchange_req(x);
    struct buf policy = BUF_INIT(1024);

    if (slice_eqs(req->path, "/")) {
        status_policy(&policy);
        reply_page(x, bytes, arena_copy(exchange_arena(x), buf_slice(&policy)));
    } else if (!slice_eqs(req->path, "/metrics")) {
        reply_bytes(x, 200, SLICE("application/json"), bytes);
    } else if (wants_openmetrics(req)) {
        reply_bytes(x, 200, SLICE("application/openmetrics-text; version=1.0.0; charset=utf-8"),
                    bytes);
    } else {
        reply_bytes(x, 200, SLICE("text/plain; version=0.0.4; charset=utf-8"), bytes);
    }
    buf_free(&policy);
}

/* --- once in a while ---------------------------------------------------------------------------------------------------- */

/* Under the lock. Its own place, else the oldest's. */
static struct text *place_of(struct texts *t, struct slice name)
{
    struct text *oldest = &t->text[0];

    for (size_t i = 0; i < TEXTS_MAX; i++) {
        if (t->text[i].made_ms != 0 && slice_eq(buf_slice(&t->text[i].name), name)) {
            return &t->text[i];
        }
        if (t->text[i].made_ms < oldest->made_ms) {
            oldest = &t->text[i];
        }
    }
    return oldest;
}

enum look { LOOK_HAVE, LOOK_MAKE, LOOK_WAIT };

/* LOOK_HAVE: *out has it. LOOK_MAKE: the caller makes it; meanwhile the others have the last one. */
static enum look look(struct texts *t, struct slice name, uint64_t now_ms, uint64_t age_ms,
                      struct buf *out)
{
    struct text *at;
    enum look found;
    bool fresh, same;

    lock_take(&t->lock);
    at = place_of(t, name);
    fresh = at->made_ms != 0 && now_ms < at->made_ms + age_ms; /* loops' clocks differ a little */
    same = at->made_ms != 0 && slice_eq(buf_slice(&at->name), name);
    found = !fresh ? LOOK_MAKE : !same ? LOOK_WAIT : at->bytes.n != 0 ? LOOK_HAVE : LOOK_MAKE;
    if (found == LOOK_HAVE) {
        buf_adds(out, buf_slice(&at->bytes));
    } else if (found == LOOK_MAKE) {
        if (!same) {
            buf_clear(&at->name);
            buf_adds(&at->name, name);
            buf_clear(&at->bytes);
        }
        at->made_ms = now_ms;
    }
    lock_drop(&t->lock);
    return found;
}

static void keep(struct texts *t, struct slice name, struct slice bytes)
{
    struct text *at;

    lock_take(&t->lock);
    at = place_of(t, name);
    if (slice_eq(buf_slice(&at->name), name)) { /* else another took the place */
        buf_clear(&at->bytes);
        buf_adds(&at->bytes, bytes);
    }
    lock_drop(&t->lock);
}

void texts_answer(struct desk *d, struct exchange *x)
{
    struct texts *t = d->serve->texts;
    uint64_t age_ms = d->set->conf->status_age_ms;
    struct buf out = BUF_INIT(TEXT_BYTES), name = BUF_INIT(NAME_BYTES);
    enum look found = LOOK_MAKE;

    name_of(d, x, &name);
    if (age_ms != 0 && name.rc == 0) {
        found = look(t, buf_slice(&name), d->loop->now_ms, age_ms, &out);
    }
    if (found == LOOK_WAIT) {
        refuse_busy(x, "the status is being asked for under too many names; come again\n");
    } else {
        if (found == LOOK_MAKE) {
            make(d, x, &out);
        }
        if (found == LOOK_MAKE && age_ms != 0 && out.rc == 0 && name.rc == 0) {
            keep(t, buf_slice(&name), buf_slice(&out));
        }
        reply(x, buf_slice(&out));
    }
    buf_free(&name);
    buf_free(&out);
}
