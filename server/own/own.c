#include "server/own/own.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/codec/blob_batch.h"
#include "server/admin/admin.h"
#include "server/admin/inventory_page.h"
#include "server/cluster/cluster.h"
#include "server/cluster/relay_fetch.h"
#include "server/http/status.h"
#include "server/own/inventory_pages.h"
#include "server/page/html.h"
#include "server/request/neighbor.h"
#include "server/request/path_token.h"
#include "server/request/peers.h"
#include "server/request/refusal.h"
#include "server/request/reply.h"
#include "server/request/response.h"
#include "server/request/right.h"
#include "server/request/roots.h"
#include "server/request/sibling.h"
#include "server/request/tree.h"
#include "server/request/blob_batch.h"
#include "server/store/pieces.h"

enum { TEXT_BYTES = 16 << 20, HOST_BYTES = 32 };

/* --- /-/blob/<sha256>, /-/chunks/<sha256>, /-/sync/cdc/<sha256>: by right to any path that holds
 * the digest --- */

enum digest_kind { DIGEST_BLOB, DIGEST_CHUNKS, DIGEST_PIECES };

enum { LISTS_WAITING = 4 }; /* of one client: lists of pieces to be made, one after the other */

struct digest_step {
    struct step step;
    enum digest_kind kind;
    bool make;      /* a list of pieces, on the pool for that */
    bool brings;    /* a list of chunks, from the cluster's bucket, on the pool for that */
    bool elsewhere; /* the bytes lie in the cluster's bucket alone */
    struct digest digest;
    const struct repo_set *set;
    const struct principal *who;
    struct buf list;
    struct blob *blob;
};

static bool is_elsewhere(struct store *s, const struct digest *d)
{
    bool here = true, there = false;

    return blob_is_here(s, d, &here, NULL) == 0 && !here && blob_exists(s, d, &there, NULL) == 0 &&
           there;
}

static void digest_work(struct step *s)
{
    struct digest_step *ds = (struct digest_step *)s;
    const struct serve_deps *deps = s->request->serve_loop->deps;
    struct store *st = deps->store;

    s->rc = right_to_digest(st, ds->set, ds->who, &ds->digest, NULL, &s->why);
    if (s->rc != 0) {
        return;
    }
    ds->elsewhere =
        deps->cluster != NULL && ds->kind != DIGEST_PIECES && is_elsewhere(st, &ds->digest);
    switch (ds->kind) {
    case DIGEST_BLOB:
        s->rc = ds->elsewhere ? 0 : blob_open(st, &ds->digest, &ds->blob, &s->why);
        return;
    case DIGEST_CHUNKS:
        s->rc = !ds->elsewhere ? blob_chunks(st, &ds->digest, &ds->list, &s->why)
                : ds->brings   ? cluster_chunks(deps->cluster, &ds->digest, &ds->list, &s->why)
                               : E_AGAIN;
        return;
    case DIGEST_PIECES: /* whoever was before us in the queue may have made it */
        s->rc = pieces_get(st, &ds->digest, &ds->list, &s->why);
        if (s->rc == E_NOTFOUND && ds->make) {
            s->rc =
                pieces_make(st, &ds->digest, &deps->own->lifecycle->draining, &ds->list, &s->why);
        } else if (s->rc == E_NOTFOUND) {
            s->rc = E_AGAIN;
        }
        return;
    }
}

static void digest_start(struct request *c, struct pool *p, const struct digest_step *from);

/* Made where nothing else waits: it reads the whole file. */
static void make_list(struct request *c, const struct digest_step *ds)
{
    const struct digest_step next = {.kind = ds->kind, .digest = ds->digest, .make = true};

    if (pool_waiting_of(c->serve_loop->deps->pieces, c->who.client) >= LISTS_WAITING) {
        refuse(c->x, 503,
               "too many chunk lists are being made for this client; download the "
               "file as a whole, or try again\n");
    } else {
        digest_start(c, c->serve_loop->deps->pieces, &next);
    }
}

static void bring_list(struct request *c, const struct digest_step *ds)
{
    const struct digest_step next = {.kind = ds->kind, .digest = ds->digest, .brings = true};

    digest_start(c, c->serve_loop->deps->content, &next);
}

static void refuse_digest(struct request *c, const struct digest_step *ds)
{
    int rc = ds->step.rc;

    if (ds->brings && ds->elsewhere) {
        refuse(c->x, rc == E_NOTFOUND ? 404 : 503,
               "the chunk list of this file is not known now: %s; download the file without it\n",
               ds->step.why.code != 0 ? ds->step.why.text : err_plain(rc));
    } else {
        refuse(c->x, status_of_error(rc, STATUS_REQUEST),
               "%s: this server has no file with that digest, or you may not read it\n",
               err_plain(rc));
    }
}

static void digest_done(struct step *s)
{
    struct digest_step *ds = (struct digest_step *)s;
    struct request *c = s->request;
    struct cached_response *h;

    if (s->rc == E_AGAIN && ds->kind == DIGEST_PIECES && !ds->make) {
        make_list(c, ds);
        return;
    }
    if (s->rc == E_AGAIN && ds->kind == DIGEST_CHUNKS && !ds->brings) {
        bring_list(c, ds);
        return;
    }
    if (s->rc != 0) {
        refuse_digest(c, ds);
        return;
    }
    c->plan = (struct plan){.kind = PLAN_BLOB,
                            .reuse = REUSE_NONE, /* the right to it is that of each caller */
                            .cache_control = SLICE("private, max-age=31536000, immutable")};
    if (ds->kind == DIGEST_BLOB && ds->elsewhere) {
        c->plan.entry.digest = ds->digest;
        tree_send_file(c);
        return;
    }
    if (ds->kind != DIGEST_BLOB) {
        c->plan.content_type = ds->kind == DIGEST_CHUNKS ? SLICE("application/vnd.mirrord.chunks")
                                                         : SLICE("application/vnd.mirrord.pieces");
        h = cached_response_new(c->set, c->repo, SLICE(""), SLICE(""));
        h->bytes = ds->list;
        ds->list = BUF_INIT(0);
        h->reply.status = 200;
        h->valid.total_bytes = h->bytes.n;
        reply_add(&h->reply, SLICE("content-type"), c->plan.content_type);
        reply_add(&h->reply, SLICE("cache-control"), c->plan.cache_control);
    } else {
        blob_touch(c->serve_loop->deps->store, &ds->digest, c->serve_loop->loop->unix_s);
        h = response_of_object(c, SLICE(""), SLICE(""), NULL, ds->blob);
        ds->blob = NULL;
    }
    c->request_log->cached_response = h;
    reply_send(c->x, c->request_log, h);
}

static void digest_free(struct step *s)
{
    struct digest_step *ds = (struct digest_step *)s;
    blob_release(&ds->blob);
    buf_free(&ds->list);
}

static void digest_start(struct request *c, struct pool *p, const struct digest_step *from)
{
    struct digest_step *ds = NEW(struct digest_step);

    *ds = *from;
    ds->set = c->set;
    ds->who = &c->who;
    ds->list = BUF_INIT(ds->kind == DIGEST_PIECES ? (size_t)PIECES_BYTES_MAX : (size_t)1 << 30);
    ds->step.work = digest_work;
    ds->step.done = digest_done;
    ds->step.free = digest_free;
    request_step(c, p, &ds->step);
}

static void answer_digest(struct serve_loop *d, struct exchange *x, struct request_log *v,
                          struct slice hex, enum digest_kind kind)
{
    struct digest_step ds = {.kind = kind};
    struct request *c;

    if (!digest_parse(hex, &ds.digest) || d->set->count == 0) {
        refuse(x, 404, "the path must end with a SHA-256: 64 hex digits\n");
        return;
    }
    c = request_new(d, x, v, d->set->repo[0], slice_first(exchange_req(x)->path, 0));
    if (c != NULL) {
        digest_start(c, d->deps->readers, &ds);
    }
}

/* --- pokes and hellos of other mirrors (cluster/poke.h) --- */

struct poke_step {
    struct step step;
    uint64_t seq;              /* of a poke */
    char node[MEMBER_ID_ROOM]; /* of a hello */
};

static void poke_work(struct step *s)
{
    struct poke_step *p = (struct poke_step *)s;
    struct cluster *c = s->request->serve_loop->deps->own->admin->cluster;

    s->rc = cluster_poke(c, p->seq) ? 0 : E_AGAIN;
}

static void hello_work(struct step *s)
{
    struct poke_step *p = (struct poke_step *)s;
    struct cluster *c = s->request->serve_loop->deps->own->admin->cluster;

    s->rc = cluster_hello(c, p->node) ? 0 : E_AGAIN;
}

static void poke_done(struct step *s)
{
    struct exchange *x = s->request->x;
    struct http_reply *r = ARENA_NEW(exchange_arena(x), struct http_reply);

    r->status = s->rc == 0 ? 204 : 202;
    exchange_reply(x, r, NULL);
}

static void poke_free(struct step *s)
{
    (void)s;
}

/* Whether there is a cluster here, and the request is a POST; else it is answered, as one that is
 * not well formed. */
static bool may_be_mirrors(struct serve_loop *d, struct exchange *x, bool well_formed)
{
    bool may = well_formed && d->deps->own->admin->cluster != NULL && d->set->count != 0 &&
               exchange_req(x)->method == METHOD_POST;

    if (!may) {
        refuse(x, 404, "not found: only the mirrors of a cluster ask for this\n");
    }
    return may;
}

static struct slice poke_signature(const struct http_req *req)
{
    return http_req_field(req, "mirrord-poke");
}

static void run_poke(struct serve_loop *d, struct exchange *x, struct request_log *v,
                     bool is_signed, const struct poke_step *what)
{
    struct poke_step *p;
    struct request *c;

    if (!is_signed) {
        refuse(x, 403, "the signature is not that of a mirror of this cluster\n");
        return;
    }
    c = request_new(d, x, v, d->set->repo[0], slice_first(exchange_req(x)->path, 0));
    if (c != NULL) {
        p = NEW(struct poke_step);
        *p = *what;
        p->step.done = poke_done;
        p->step.free = poke_free;
        request_step(c, d->deps->disk, &p->step);
    }
}

static void answer_poke(struct serve_loop *d, struct exchange *x, struct request_log *v)
{
    const struct http_req *req = exchange_req(x);
    struct slice seq = slice_from(req->query, min_u64(req->query.n, strlen("seq=")));
    struct cluster *cluster = d->deps->own->admin->cluster;
    struct poke_step p = {.step.work = poke_work};

    if (may_be_mirrors(d, x, slice_u64(seq, &p.seq))) {
        run_poke(d, x, v, cluster_signed_poke(cluster, p.seq, poke_signature(req)), &p);
    }
}

static void answer_hello(struct serve_loop *d, struct exchange *x, struct request_log *v)
{
    const struct http_req *req = exchange_req(x);
    struct slice node = slice_from(req->query, min_u64(req->query.n, strlen("node=")));
    struct cluster *cluster = d->deps->own->admin->cluster;
    struct poke_step p = {.step.work = hello_work};

    if (may_be_mirrors(d, x, node.n == MEMBER_ID_ROOM - 1)) {
        memcpy(p.node, node.p, node.n);
        run_poke(d, x, v, cluster_signed_hello(cluster, node, poke_signature(req)), &p);
    }
}

/* --- which mirrors there are --- */

static void answer_nodes(struct serve_loop *d, struct exchange *x)
{
    struct cluster *cluster = d->deps->own->admin->cluster;
    struct buf out = BUF_INIT(TEXT_BYTES);

    if (cluster == NULL) {
        refuse(x, 404, "not found: this mirror stands alone\n");
        return;
    }
    cluster_nodes_json(cluster, &out);
    reply_bytes(x, 200, SLICE("application/json"), buf_slice(&out));
    buf_free(&out);
}

/* --- metrics and status: texts that are made at most once in `status_age`, for all who ask. --- */

/* A text depends on its path and form, on whether the client uses TLS and has logged in: nine texts
 * in all. The client's host, which links begin with, is filled in when the text is sent, so that no
 * Host header makes one anew. The lock is short, and not held while a text is made. */
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
    uint64_t made_ms; /* when somebody last began to make_text it; 0: never */
};

/* Stands in a kept text for the host that a client asked: nobody can know it, so no name or path of
 * a repo contains it. */
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

static struct texts *texts_open(void)
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

static void texts_close(struct texts **tp)
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

/* --- metrics and status: which text ----------------------------------------------------------- */

static bool wants_openmetrics(const struct http_req *req)
{
    return slice_starts(slice_trim(http_req_field(req, "accept")),
                        SLICE("application/openmetrics-text"));
}

static enum text_kind text_kind_of(struct exchange *x)
{
    const struct http_req *req = exchange_req(x);
    const struct request_log *v = exchange_user(x);

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

static void make_text(struct serve_loop *d, struct exchange *x, enum text_kind kind,
                      struct buf *out)
{
    const struct placeholder *p = &d->deps->own->texts->placeholder;
    struct slice base = d->set->conf->public_url != NULL
                            ? reply_base_url(exchange_req(x), d->set->conf, exchange_arena(x))
                            : arena_fmt(exchange_arena(x), "http%s://%s" PLACEHOLDER_PORT,
                                        exchange_req(x)->tls ? "s" : "", p->host);

    switch (kind) {
    case TEXT_METRICS:
    case TEXT_OPENMETRICS:
        metrics_text(d->deps->own->admin, kind == TEXT_OPENMETRICS, out);
        break;
    case TEXT_TUNASYNC:
        tunasync_json(d->deps->own->admin, out);
        break;
    case TEXT_STATUS:
    case TEXT_STATUS_TLS:
        status_json(d->deps->own->admin, base, false, out);
        break;
    case TEXT_PAGE:
    case TEXT_PAGE_TLS:
        status_page(d->deps->own->admin, base, false, out);
        break;
    case TEXT_PAGE_LOGGED_IN:
    case TEXT_PAGE_LOGGED_IN_TLS:
        status_page(d->deps->own->admin, base, true, out);
        break;
    case TEXT_KINDS:
        break;
    }
}

/* The text with the client's own host. A Host that came this far has no character that HTML or JSON
 * would escape. */
static void fetch_in_host(const struct placeholder *p, struct slice text, struct slice host,
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

static void reply_text_of(struct exchange *x, enum text_kind kind, struct slice bytes)
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

/* --- metrics and status: made once in a while ------------------------------------------------- */

/* True: *out has the text. False: the caller makes it; meanwhile others get the last one. */
static bool find_text(struct texts *t, enum text_kind kind, uint64_t now_ms, uint64_t age_ms,
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

static void keep_text(struct texts *t, enum text_kind kind, struct slice bytes)
{
    lock_take(&t->lock);
    buf_clear(&t->text[kind].bytes);
    buf_adds(&t->text[kind].bytes, bytes);
    lock_drop(&t->lock);
}

static void answer_text(struct serve_loop *d, struct exchange *x)
{
    struct texts *t = d->deps->own->texts;
    uint64_t age_ms = d->set->conf->status_age_ms;
    enum text_kind kind = text_kind_of(x);
    struct buf text = BUF_INIT(TEXT_BYTES), out = BUF_INIT(TEXT_BYTES + (1 << 20));

    if (age_ms == 0 || !find_text(t, kind, d->loop->now_ms, age_ms, &text)) {
        make_text(d, x, kind, &text);
        if (age_ms != 0 && text.rc == 0) {
            keep_text(t, kind, buf_slice(&text));
        }
    }
    fetch_in_host(&t->placeholder, buf_slice(&text), exchange_req(x)->host, &out);
    reply_text_of(x, kind, buf_slice(&out));
    buf_free(&text);
    buf_free(&out);
}

/* --- is it ready --- */

static void answer_ready(struct serve_loop *d, struct exchange *x)
{
    struct store_space space;
    struct err why = {0};

    store_space(d->deps->store, &space);
    if (d->deps->own->lifecycle->draining) {
        refuse(x, 503, "draining: this server is stopping\n");
    } else if (!d->deps->own->lifecycle->ready) {
        refuse(x, 503, "starting: this mirror is not ready yet\n");
    } else if (d->deps->own->lifecycle->leaving) {
        refuse(x, 503, "leaving: this mirror is about to leave its cluster\n");
    } else if (!store_healthy(d->deps->store, &why)) {
        refuse(x, 503, "the store has failed: %s\n", why.text);
    } else {
        /* One that stores nothing new still serves what it has. */
        reply_text(x, 200,
                   space.full || space.disk_free_bytes < space.reserve_bytes
                       ? SLICE("ready\nthe disk of the store is short of space: see `mirrorctl "
                               "status`\n")
                       : SLICE("ready\n"));
    }
}

/* --- /-/: the pages and documents of this file, as links --- */

static const struct {
    const char *path, *what;
} own_pages[] = {
    {"/", "status: objects in the cache, transfers in progress, problems that need attention"},
    {"/-/status.json", "the same as JSON, for programs"},
    {"/-/tunasync.json", "synced repositories, in the format that mirror lists read"},
    {"/metrics", "metrics for Prometheus"},
    {"/healthz", "answers 200 while the process is alive"},
    {"/readyz", "answers 503 while requests should go to another server"},
};

static void index_row(struct buf *out, const char *path, const char *name, const char *what)
{
    buf_addf(out, "<tr><td><a href=\"%s%s%s\">%s%s%s</a><td>%s\n", path, name,
             name[0] != '\0' ? "/" : "", path, name, name[0] != '\0' ? "/" : "", what);
}

static void index_page(const struct repo_set *set, struct buf *out)
{
    enum inventory_kind kind;

    html_begin(out, SLICE("pages - mirrord"));
    buf_str(
        out,
        "<header class=\"folder\">\n<h1><a href=\"/\">mirrord</a> / pages</h1>\n"
        "<p id=\"state\">the daemon's own pages</p>\n</header>\n<main>\n<table class=\"index\">\n");
    for (size_t i = 0; i < ARRAY_LEN(own_pages); i++) {
        index_row(out, own_pages[i].path, "", own_pages[i].what);
    }
    for (size_t i = 0; i < set->count; i++) {
        if (inventory_kind_of(set->repo[i], &kind)) {
            index_row(out, INVENTORY_PAGES, set->repo[i]->name,
                      kind == INVENTORY_HOSTED ? "repositories uploaded here"
                                               : "repositories of a Hub, and which of their "
                                                 "files are here");
        }
    }
    buf_str(out, "</table>\n</main>\n");
    html_end(out, HTML_FOLDER);
}

static void answer_index(struct serve_loop *d, struct exchange *x)
{
    struct buf page = BUF_INIT(1 << 20), policy = BUF_INIT(1024);

    index_page(d->set, &page);
    html_policy(&policy, HTML_FOLDER);
    reply_page(x, buf_slice(&page), arena_copy(exchange_arena(x), buf_slice(&policy)));
    buf_free(&page);
    buf_free(&policy);
}

/* --- which path is whose --- */

static bool vital(const struct http_req *req)
{
    return slice_eqs(req->path, "/healthz") || slice_eqs(req->path, "/readyz") ||
           slice_eqs(req->path, "/metrics");
}

static void answer_own_request(struct serve_loop *d, struct exchange *x, struct request_log *v,
                               const struct route *to)
{
    const struct http_req *req = exchange_req(x);
    struct slice path = req->path;

    (void)to;
    if (slice_eqs(path, BLOB_BATCH_PATH)) {
        blob_batch_answer(d, x, v);
    } else if (slice_starts(path, SLICE("/-/peers/"))) {
        peers_answer(d, x, v, slice_from(path, 9));
    } else if (slice_eqs(path, "/-/cluster/poke")) {
        answer_poke(d, x, v);
    } else if (slice_eqs(path, "/-/cluster/hello")) {
        answer_hello(d, x, v);
    } else if (slice_eqs(path, NEIGHBOR_PATH)) {
        neighbor_answer(d, x, v);
    } else if (slice_eqs(path, RELAY_UPLOADED_PATH)) {
        sibling_answer_uploaded(d, x, v);
    } else if (slice_eqs(path, RELAY_ROW_PATH)) {
        sibling_answer_row(d, x, v);
    } else if (req->method != METHOD_GET && req->method != METHOD_HEAD) {
        refuse_method(x, SLICE("GET, HEAD"), SLICE("this path accepts only GET and HEAD\n"));
    } else if (slice_eqs(path, "/healthz")) {
        reply_text(x, 200, SLICE("ok\n"));
    } else if (slice_eqs(path, "/-/") || slice_eqs(path, "/-")) {
        answer_index(d, x);
    } else if (slice_eqs(path, "/-/logout")) {
        refuse_login(x);
    } else if (slice_eqs(path, "/readyz")) {
        answer_ready(d, x);
    } else if (slice_eqs(path, "/-/cluster/nodes")) {
        answer_nodes(d, x);
    } else if (slice_eqs(path, "/metrics") || slice_eqs(path, "/-/status.json") ||
               slice_eqs(path, "/-/tunasync.json") || slice_eqs(path, "/")) {
        answer_text(d, x);
    } else if (slice_starts(path, SLICE(INVENTORY_PAGES))) {
        inventory_pages_answer(d, x, v, slice_from(path, strlen(INVENTORY_PAGES)),
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
               "not found: this server has no repo and no page at this path; the page at / "
               "lists the repos\n");
    }
}

/* --- the front frontend --- */

static struct route route(struct serve_loop *d, struct exchange *x)
{
    return path_token_take(x, d->set->repo, d->set->count,
                           listener_root(exchange_req(x)->listener));
}

/* Health is not: who looks after a busy server must see that it lives. */
static bool own_request_is_counted(const struct http_req *req)
{
    return !slice_eqs(req->path, "/healthz") && !slice_eqs(req->path, "/readyz") &&
           !slice_eqs(req->path, "/-/cluster/poke") && !slice_eqs(req->path, "/-/cluster/hello") &&
           !slice_eqs(req->path, NEIGHBOR_PATH);
}

static void refuse_stranger(struct serve_loop *d, struct exchange *x, const char *why)
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

static struct slice own_refusal_words(const struct http_req *req, struct slice why, struct arena *a,
                                      struct http_reply *r)
{
    return refusal_words(req, arena_fmt(a, SLICE_FMT "\n", SLICE_ARG(why)), a, r);
}

const struct frontend frontend_front = {
    .vital = vital,
    .route = route,
    .answer = answer_own_request,
    .counted = own_request_is_counted,
    .refuse_token = refuse_stranger,
    .refuse_rate_limited = refuse_rate_limited,
    .challenge = challenge,
    .words = own_refusal_words,
};

/* --- what it shows --- */

struct own *own_open(const struct admin_deps *admin, const struct hub_deps *hub,
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
