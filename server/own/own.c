#include "server/own/own.h"

#include <stdlib.h>

#include "common/codec/sheaf.h"
#include "server/admin/index_page.h"
#include "server/admin/stock_page.h"
#include "server/http/status.h"
#include "server/own/stock_pages.h"
#include "server/own/texts.h"
#include "server/page/html.h"
#include "server/serve/path_token.h"
#include "server/serve/peers.h"
#include "server/serve/refusal.h"
#include "server/serve/reply.h"
#include "server/serve/resolve.h"
#include "server/serve/right.h"
#include "server/serve/roots.h"
#include "server/serve/sheaf.h"
#include "server/store/pieces.h"

/* --- /-/blob/<sha256>, /-/chunks/<sha256>, /-/sync/cdc/<sha256>: by right to any path that holds the digest --- */

enum digest_kind { DIGEST_BLOB, DIGEST_CHUNKS, DIGEST_PIECES };

enum { LISTS_WAITING = 4 }; /* of one client: lists of pieces to be made, one after the other */

struct digest_step {
    struct step step;
    enum digest_kind kind;
    bool make; /* a list of pieces, on the pool for that */
    struct digest digest;
    const struct repo_set *set;
    const struct principal *who;
    struct buf list;
    struct blob *blob;
};

static void digest_work(struct step *s)
{
    struct digest_step *ds = (struct digest_step *)s;
    const struct serve_parts *parts = s->call->desk->parts;
    struct store *st = parts->store;

    s->rc = right_to_digest(st, ds->set, ds->who, &ds->digest, NULL, &s->why);
    if (s->rc != 0) {
        return;
    }
    switch (ds->kind) {
    case DIGEST_BLOB:
        s->rc = blob_open(st, &ds->digest, &ds->blob, &s->why);
        return;
    case DIGEST_CHUNKS:
        s->rc = blob_chunks(st, &ds->digest, &ds->list, &s->why);
        return;
    case DIGEST_PIECES: /* whoever was before us in the queue may have made it */
        s->rc = pieces_get(st, &ds->digest, &ds->list, &s->why);
        if (s->rc == E_NOTFOUND && ds->make) {
            s->rc =
                pieces_make(st, &ds->digest, &parts->own->lifecycle->draining, &ds->list, &s->why);
        } else if (s->rc == E_NOTFOUND) {
            s->rc = E_AGAIN;
        }
        return;
    }
}

static void digest_start(struct call *c, const struct digest_step *from, bool make);

/* Made where nothing else waits: it reads the whole file. */
static void make_list(struct call *c, const struct digest_step *ds)
{
    if (pool_waiting_of(c->desk->parts->pieces, c->who.client) >= LISTS_WAITING) {
        refuse(c->x, 503, "busy with other lists; fetch the file, or come again\n");
    } else {
        digest_start(c, ds, true);
    }
}

static void digest_done(struct step *s)
{
    struct digest_step *ds = (struct digest_step *)s;
    struct call *c = s->call;
    struct hot *h;

    if (s->rc == E_AGAIN && ds->kind == DIGEST_PIECES && !ds->make) {
        make_list(c, ds);
        return;
    }
    if (s->rc != 0) {
        refuse(c->x, status_of_error(s->rc, STATUS_REQUEST),
               "%s: no such digest here, or no right to it\n", err_plain(s->rc));
        return;
    }
    c->plan = (struct plan){.kind = PLAN_BLOB,
                            .cache_control = SLICE("private, max-age=31536000, immutable")};
    if (ds->kind != DIGEST_BLOB) {
        c->plan.content_type = ds->kind == DIGEST_CHUNKS ? SLICE("application/vnd.mirrord.chunks")
                                                         : SLICE("application/vnd.mirrord.pieces");
        h = hot_new(c->set, c->repo, SLICE(""), SLICE(""));
        h->bytes = ds->list;
        ds->list = BUF_INIT(0);
        h->reply.status = 200;
        h->valid.total_bytes = h->bytes.n;
        reply_add(&h->reply, SLICE("content-type"), c->plan.content_type);
        reply_add(&h->reply, SLICE("cache-control"), c->plan.cache_control);
    } else {
        blob_touch(c->desk->parts->store, &ds->digest, c->desk->loop->unix_s);
        h = resolve_object(c, SLICE(""), SLICE(""), NULL, ds->blob);
        ds->blob = NULL;
    }
    c->visit->hot = h;
    reply_send(c->x, c->visit, h);
}

static void digest_free(struct step *s)
{
    struct digest_step *ds = (struct digest_step *)s;
    blob_release(&ds->blob);
    buf_free(&ds->list);
}

static void digest_start(struct call *c, const struct digest_step *from, bool make)
{
    struct digest_step *ds = NEW(struct digest_step);
    const struct serve_parts *parts = c->desk->parts;

    ds->kind = from->kind;
    ds->digest = from->digest;
    ds->make = make;
    ds->set = c->set;
    ds->who = &c->who;
    ds->list = BUF_INIT(ds->kind == DIGEST_PIECES ? (size_t)PIECES_BYTES_MAX : (size_t)1 << 30);
    ds->step.work = digest_work;
    ds->step.done = digest_done;
    ds->step.free = digest_free;
    call_step(c, make ? parts->pieces : parts->readers, &ds->step);
}

static void answer_digest(struct desk *d, struct exchange *x, struct visit *v, struct slice hex,
                          enum digest_kind kind)
{
    struct digest_step ds = {.kind = kind};
    struct call *c;

    if (!digest_parse(hex, &ds.digest) || d->set->count == 0) {
        refuse(x, 404, "not a SHA-256 in hex\n");
        return;
    }
    c = call_new(d, x, v, d->set->repo[0], slice_first(exchange_req(x)->path, 0));
    if (c != NULL) {
        digest_start(c, &ds, false);
    }
}

/* --- is it ready --- */

static void answer_ready(struct desk *d, struct exchange *x)
{
    struct err why = {0};

    if (d->parts->own->lifecycle->draining) {
        refuse(x, 503, "draining: this server is stopping\n");
    } else if (!store_healthy(d->parts->store, &why)) {
        refuse(x, 503, "the store is in trouble: %s\n", why.text);
    } else {
        reply_text(x, 200, SLICE("ready\n"));
    }
}

static void answer_index(struct desk *d, struct exchange *x)
{
    struct buf page = BUF_INIT(1 << 20), policy = BUF_INIT(1024);

    index_page(d->set, &page);
    html_policy(&policy, HTML_FOLDER);
    reply_page(x, buf_slice(&page), arena_copy(exchange_arena(x), buf_slice(&policy)));
    buf_free(&page);
    buf_free(&policy);
}

static bool vital(const struct http_req *req)
{
    return slice_eqs(req->path, "/healthz") || slice_eqs(req->path, "/readyz") ||
           slice_eqs(req->path, "/metrics");
}

static void answer(struct desk *d, struct exchange *x, struct visit *v, const struct route *to)
{
    const struct http_req *req = exchange_req(x);
    struct slice path = req->path;

    (void)to;
    if (slice_eqs(path, SHEAF_PATH)) {
        sheaf_answer(d, x, v);
    } else if (slice_starts(path, SLICE("/-/peers/"))) {
        peers_answer(d, x, v, slice_from(path, 9));
    } else if (req->method != METHOD_GET && req->method != METHOD_HEAD) {
        refuse_method(x, SLICE("GET, HEAD"), SLICE("this path takes GET and HEAD\n"));
    } else if (slice_eqs(path, "/healthz")) {
        reply_text(x, 200, SLICE("ok\n"));
    } else if (slice_eqs(path, "/-/") || slice_eqs(path, "/-")) {
        answer_index(d, x);
    } else if (slice_eqs(path, "/-/logout")) {
        refuse_login(x);
    } else if (slice_eqs(path, "/readyz")) {
        answer_ready(d, x);
    } else if (slice_eqs(path, "/metrics") || slice_eqs(path, "/-/status.json") ||
               slice_eqs(path, "/-/tunasync.json") || slice_eqs(path, "/")) {
        texts_answer(d, x);
    } else if (slice_starts(path, SLICE(STOCK_PAGES))) {
        stock_pages_answer(d, x, v, slice_from(path, strlen(STOCK_PAGES)),
                           reply_base_url(req, d->set->conf, exchange_arena(x)));
    } else if (slice_starts(path, SLICE("/-/chunks/"))) {
        answer_digest(d, x, v, slice_from(path, 10), DIGEST_CHUNKS);
    } else if (slice_starts(path, SLICE("/-/blob/"))) {
        answer_digest(d, x, v, slice_from(path, 8), DIGEST_BLOB);
    } else if (slice_starts(path, SLICE("/-/sync/cdc/")) &&
               path.n == 12 + DIGEST_HEX) { /* a repo may have that name */
        answer_digest(d, x, v, slice_from(path, 12), DIGEST_PIECES);
    } else if (slice_starts(path, SLICE("/-/sync/"))) {
        roots_answer(d, x, v, slice_from(path, 8));
    } else {
        refuse(x, 404,
               "not found: no repo and no page of this server has this path; the page at / lists "
               "the repos\n");
    }
}

/* --- the front entrance --- */

static struct route route(struct desk *d, struct exchange *x)
{
    return path_token_take(x, d->set->repo, d->set->count,
                           listener_root(exchange_req(x)->listener));
}

/* Health is not: who looks after a busy server must see that it lives. */
static bool counted(const struct http_req *req)
{
    return !slice_eqs(req->path, "/healthz") && !slice_eqs(req->path, "/readyz");
}

static void refuse_stranger(struct desk *d, struct exchange *x, const char *why)
{
    (void)d;
    refuse_token(x, why);
}

static void challenge(const struct http_req *req, const struct conf *conf, bool publish,
                      struct arena *a, struct http_reply *r)
{
    (void)req, (void)conf, (void)publish, (void)a;
    refusal_challenge(r);
}

static struct slice words(const struct http_req *req, struct slice why, struct arena *a,
                          struct http_reply *r)
{
    return refusal_words(req, arena_fmt(a, SLICE_FMT "\n", SLICE_ARG(why)), a, r);
}

const struct entrance entrance_front = {
    .vital = vital,
    .route = route,
    .answer = answer,
    .counted = counted,
    .refuse_token = refuse_stranger,
    .refuse_haste = refuse_haste,
    .challenge = challenge,
    .words = words,
};

/* --- what it shows --- */

struct own *own_open(const struct admin_parts *admin, const struct hub_parts *hub,
                     struct lifecycle *l)
{
    struct own *o = NEW(struct own);

    *o = (struct own){.admin = admin, .hub = hub, .lifecycle = l, .texts = texts_open()};
    return o;
}

void own_close(struct own **op)
{
    struct own *o = *op;

    if (o != NULL) {
        *op = NULL;
        texts_close(&o->texts);
        free(o);
    }
}
