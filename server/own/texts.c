#include "server/own/texts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "server/admin/admin.h"
#include "server/own/own.h"
#include "server/serve/reply.h"

enum { TEXT_BYTES = 16 << 20, HOST_BYTES = 32 };

enum text_kind {
    TEXT_METRICS,
    TEXT_OPENMETRICS,
    TEXT_TUNASYNC,
    TEXT_STATUS,
    TEXT_STATUS_TLS,
    TEXT_PAGE,
    TEXT_PAGE_TLS,
    TEXT_PAGE_LOGGED_IN, /* has a link to log out */
    TEXT_PAGE_LOGGED_IN_TLS,
    TEXT_KINDS
};

struct text {
    struct buf bytes;
    uint64_t made_ms; /* when somebody last began to make it; 0: never */
};

/* Stands in a kept text for the host that a client asked: nobody can know it, so no name or path of a repo contains it. */
struct placeholder {
    char host[HOST_BYTES];
};

/* Host and port together stand for the client's host and port. No listener's port begins so. */
#define PLACEHOLDER_PORT ":0"

struct texts {
    struct placeholder placeholder;
    struct lock lock; /* over text */
    struct text text[TEXT_KINDS];
};

struct texts *texts_open(void)
{
    struct texts *t = NEW(struct texts);
    uint64_t number = 0;

    CHECK(getrandom(&number, sizeof number, 0) == (ssize_t)sizeof number);
    snprintf(t->placeholder.host, HOST_BYTES, "%016" PRIx64 ".invalid", number);
    lock_init(&t->lock, LOCK_LEAF);
    for (size_t i = 0; i < TEXT_KINDS; i++) {
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
    for (size_t i = 0; i < TEXT_KINDS; i++) {
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

static enum text_kind kind_of(struct exchange *x)
{
    const struct http_req *req = exchange_req(x);
    const struct visit *v = exchange_user(x);

    if (slice_eqs(req->path, "/metrics")) {
        return wants_openmetrics(req) ? TEXT_OPENMETRICS : TEXT_METRICS;
    }
    if (slice_eqs(req->path, "/-/tunasync.json")) {
        return TEXT_TUNASYNC;
    }
    if (slice_eqs(req->path, "/-/status.json")) {
        return req->tls ? TEXT_STATUS_TLS : TEXT_STATUS;
    }
    if (v->who.token != NULL) {
        return req->tls ? TEXT_PAGE_LOGGED_IN_TLS : TEXT_PAGE_LOGGED_IN;
    }
    return req->tls ? TEXT_PAGE_TLS : TEXT_PAGE;
}

static void make(struct desk *d, struct exchange *x, enum text_kind kind, struct buf *out)
{
    const struct placeholder *p = &d->parts->own->texts->placeholder;
    struct slice base = d->set->conf->public_url != NULL
                            ? reply_base_url(exchange_req(x), d->set->conf, exchange_arena(x))
                            : arena_fmt(exchange_arena(x), "http%s://%s" PLACEHOLDER_PORT,
                                        exchange_req(x)->tls ? "s" : "", p->host);

    switch (kind) {
    case TEXT_METRICS:
    case TEXT_OPENMETRICS:
        metrics_text(d->parts->own->admin, kind == TEXT_OPENMETRICS, out);
        break;
    case TEXT_TUNASYNC:
        tunasync_json(d->parts->own->admin, out);
        break;
    case TEXT_STATUS:
    case TEXT_STATUS_TLS:
        status_json(d->parts->own->admin, base, false, out);
        break;
    case TEXT_PAGE:
    case TEXT_PAGE_TLS:
        status_page(d->parts->own->admin, base, false, out);
        break;
    case TEXT_PAGE_LOGGED_IN:
    case TEXT_PAGE_LOGGED_IN_TLS:
        status_page(d->parts->own->admin, base, true, out);
        break;
    case TEXT_KINDS:
        break;
    }
}

/* The text with the client's own host. A Host that came this far has no character that HTML or JSON would escape. */
static void fill_in(const struct placeholder *p, struct slice text, struct slice host,
                    struct buf *out)
{
    struct slice name = slice_str(p->host), port = SLICE(PLACEHOLDER_PORT);
    const char *at;

    while (text.n > 0 && (at = memmem(text.p, text.n, name.p, name.n)) != NULL) {
        size_t before = (size_t)(at - text.p);
        buf_adds(out, slice_first(text, before));
        text = slice_from(text, before + name.n);
        if (slice_starts(text, port)) {
            text = slice_from(text, port.n);
            buf_adds(out, host);
        } else {
            buf_adds(out, http_host_name(host));
        }
    }
    buf_adds(out, text);
}

static void reply(struct exchange *x, enum text_kind kind, struct slice bytes)
{
    struct buf policy = BUF_INIT(1024);

    switch (kind) {
    case TEXT_METRICS:
        reply_bytes(x, 200, SLICE("text/plain; version=0.0.4; charset=utf-8"), bytes);
        break;
    case TEXT_OPENMETRICS:
        reply_bytes(x, 200, SLICE("application/openmetrics-text; version=1.0.0; charset=utf-8"),
                    bytes);
        break;
    case TEXT_TUNASYNC:
    case TEXT_STATUS:
    case TEXT_STATUS_TLS:
        reply_bytes(x, 200, SLICE("application/json"), bytes);
        break;
    case TEXT_PAGE:
    case TEXT_PAGE_TLS:
    case TEXT_PAGE_LOGGED_IN:
    case TEXT_PAGE_LOGGED_IN_TLS:
        status_policy(&policy);
        reply_page(x, bytes, arena_copy(exchange_arena(x), buf_slice(&policy)));
        break;
    case TEXT_KINDS:
        break;
    }
    buf_free(&policy);
}

/* --- once in a while ---------------------------------------------------------------------------------------------------- */

/* True: *out has the text. False: the caller makes it; meanwhile others get the last one. */
static bool look_up(struct texts *t, enum text_kind kind, uint64_t now_ms, uint64_t age_ms,
                    struct buf *out)
{
    struct text *at = &t->text[kind];
    bool fresh, found;

    lock_take(&t->lock);
    fresh = at->made_ms != 0 && now_ms < at->made_ms + age_ms; /* loops' clocks differ a little */
    found = fresh && at->bytes.n != 0;
    if (found) {
        buf_adds(out, buf_slice(&at->bytes));
    } else {
        at->made_ms = now_ms;
    }
    lock_drop(&t->lock);
    return found;
}

static void keep(struct texts *t, enum text_kind kind, struct slice bytes)
{
    lock_take(&t->lock);
    buf_clear(&t->text[kind].bytes);
    buf_adds(&t->text[kind].bytes, bytes);
    lock_drop(&t->lock);
}

void texts_answer(struct desk *d, struct exchange *x)
{
    struct texts *t = d->parts->own->texts;
    uint64_t age_ms = d->set->conf->status_age_ms;
    enum text_kind kind = kind_of(x);
    struct buf text = BUF_INIT(TEXT_BYTES), out = BUF_INIT(TEXT_BYTES + (1 << 20));

    if (age_ms == 0 || !look_up(t, kind, d->loop->now_ms, age_ms, &text)) {
        make(d, x, kind, &text);
        if (age_ms != 0 && text.rc == 0) {
            keep(t, kind, buf_slice(&text));
        }
    }
    fill_in(&t->placeholder, buf_slice(&text), exchange_req(x)->host, &out);
    reply(x, kind, buf_slice(&out));
    buf_free(&text);
    buf_free(&out);
}
