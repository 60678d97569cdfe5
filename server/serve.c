#include "server/serve.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "server/repo/hosted/listing.h"
#include "server/serve/document.h"
#include "server/serve/need.h"
#include "server/serve/opening.h"
#include "server/serve/own.h"
#include "server/serve/put.h"
#include "server/serve/reply.h"

enum { HOT_ENTRIES = 8192, HOT_BYTES = 64 << 20, HOT_NAME_BYTES = 2048 };

/* ================================================================== the corridor, from the top ==== */

static void on_request(void *arg, struct exchange *x); /* listen, parse: http brings us here */
static bool enter(struct desk *d, struct exchange *x, struct visit *v, bool ours); /* gate */
static bool from_hot(struct desk *d, struct exchange *x, struct visit *v, struct repo *r,
                     struct slice name);
/* call_advance(): plan, until it needs nothing more; then one of these */
static void execute_want(struct call *c);  /* cache */
static void execute_blob(struct call *c);  /* store */
static void execute_list(struct call *c);  /* store */
static void execute_reply(struct call *c); /* refusal, redirect */
/* and at the very end */
static void on_end(void *arg, struct exchange *x, const struct exchange_end *end);

static struct slice hot_name(const struct http_req *req, const struct repo *r, struct slice path);

static void on_request(void *arg, struct exchange *x)
{
    struct desk *d = exchange_loop(x)->local;
    const struct http_req *req = exchange_req(x);
    struct visit *v = ARENA_NEW(exchange_arena(x), struct visit);
    struct forwarded behind;
    struct route to;

    (void)arg;
    exchange_set_user(x, v);
    if (gate_client(d->daemon->gate, req, &behind)) {
        exchange_forwarded(x, &behind.peer, behind.tls, behind.host);
    }
    to = route_of(d->set->repo, d->set->count, req->path, listener_root(req->listener));
    if (!enter(d, x, v, to.repo == NULL)) {
        return;
    }
    if (to.repo == NULL) {
        own_answer(d, x, v);
    } else if (!from_hot(d, x, v, to.repo, hot_name(req, to.repo, to.path))) {
        call_advance(call_new(d, x, v, to.repo, to.path));
    }
}

static bool allowed(const struct call *c, struct exchange *x);

void call_advance(struct call *c)
{
    struct err why = {0};
    int rc;

    c->visit->repo = c->repo;
    c->plan = (struct plan){0};
    rc = c->repo->ops->plan(c->repo, &c->req, c->path, &c->who, &c->facts, &c->arena, &c->plan,
                            &why);
    if (rc != 0) {
        refuse(c->x,
               rc == E_NOTFOUND                    ? 404
               : rc == E_DENIED                    ? 403
               : rc == E_INVALID || rc == E_TOOBIG ? 400
                                                   : 500,
               "%s\n", why.text);
        return;
    }
    if (c->plan.kind != PLAN_REPLY && !allowed(c, c->x)) {
        return;
    }
    switch (c->plan.kind) {
    case PLAN_NEED:
        need_resolve(c);
        return;
    case PLAN_WANT:
        execute_want(c);
        return;
    case PLAN_BLOB:
        execute_blob(c);
        return;
    case PLAN_LIST:
        execute_list(c);
        return;
    case PLAN_PUT:
        upload_flow_start(c);
        return;
    case PLAN_REPLY:
        execute_reply(c);
        return;
    }
}

/* ================================================================== gate ==== */

void refuse(struct exchange *x, int status, const char *fmt, ...)
{
    struct buf text = BUF_INIT(4096);
    va_list ap;

    va_start(ap, fmt);
    buf_vaddf(&text, fmt, ap);
    va_end(ap);
    reply_text(x, status, buf_slice(&text));
    buf_free(&text);
}

void refuse_method(struct exchange *x, struct slice allow, struct slice text)
{
    struct http_reply *r = ARENA_NEW(exchange_arena(x), struct http_reply);

    r->status = 405;
    reply_add(r, SLICE("allow"), allow);
    reply_add(r, SLICE("content-type"), SLICE("text/plain; charset=utf-8"));
    exchange_reply(x, r, body_of_bytes(text));
}

static void ask_for_token(struct exchange *x, const char *why)
{
    struct http_reply *r = ARENA_NEW(exchange_arena(x), struct http_reply);

    r->status = 401;
    reply_add(r, SLICE("www-authenticate"), SLICE("Basic realm=\"mirrord\", Bearer"));
    reply_add(r, SLICE("content-type"), SLICE("text/plain; charset=utf-8"));
    exchange_reply(x, r, body_of_bytes(arena_fmt(exchange_arena(x), "%s\n", why)));
}

static void too_fast(struct exchange *x, const struct gate_verdict *g)
{
    struct arena *a = exchange_arena(x);
    struct http_reply *r = ARENA_NEW(a, struct http_reply);

    r->status = 429;
    reply_addf(r, a, "retry-after", "%" PRIu32, g->retry_after_s);
    reply_addf(r, a, "ratelimit", "limit=%" PRIu64 ", remaining=%" PRIu64 ", reset=%" PRIu64,
               g->limit, g->remaining, g->reset_s);
    reply_add(r, SLICE("content-type"), SLICE("text/plain; charset=utf-8"));
    exchange_reply(x, r,
                   body_of_bytes(arena_fmt(a,
                                           "too many requests: %" PRIu64
                                           " at once are the limit; try again in %" PRIu32 " s\n",
                                           g->limit, g->retry_after_s)));
}

/* Health, metrics and the page are not counted: whoever watches must see most when it is busiest. */
static bool enter(struct desk *d, struct exchange *x, struct visit *v, bool ours)
{
    const struct http_req *req = exchange_req(x);
    struct gate_verdict g = {.pass = true};
    struct err why = {0};

    if (gate_identify(d->daemon->gate, req, &v->who, &why) != 0) {
        ask_for_token(x, why.text);
        return false;
    }
    if (!ours || slice_starts(req->path, SLICE("/-/blob/")) ||
        slice_starts(req->path, SLICE("/-/chunks/"))) {
        gate_spend(d->daemon->gate, &v->who, req->peer, d->loop->now_ms, &g);
    }
    if (!g.pass) {
        too_fast(x, &g);
        return false;
    }
    v->pace = g.pace;
    return true;
}

static bool allowed(const struct call *c, struct exchange *x)
{
    bool publish = c->plan.right == RIGHT_PUBLISH;

    if ((!publish && c->repo->anonymous_read) ||
        gate_allows(&c->who, publish ? "publish" : "read", c->plan.subject)) {
        return true;
    }
    if (c->who.token == NULL) {
        ask_for_token(
            x, publish
                   ? "publishing needs a token with scope publish:...; see `mirrorctl token create`"
                   : "this repo needs a token with scope read:...; see `mirrorctl token create`");
    } else {
        refuse(x, 403, "token " SLICE_FMT " has no scope for this: it needs %s:" SLICE_FMT "\n",
               SLICE_ARG(c->who.name), publish ? "publish" : "read", SLICE_ARG(c->plan.subject));
    }
    return false;
}

/* ================================================================== resolved answers ==== */

static bool wants_fresh(const struct http_req *req)
{
    struct slice cc = http_req_field(req, "cache-control");

    while (cc.n != 0) {
        struct slice item = slice_trim(slice_cut(&cc, ','));
        if (slice_ieq(item, SLICE("no-cache")) || slice_ieq(item, SLICE("max-age=0"))) {
            return true;
        }
    }
    return false;
}

/* Repo, path and query (path points into req's target); and what a rendering is chosen by. p == NULL: not for the table. */
static struct slice hot_name(const struct http_req *req, const struct repo *r, struct slice path)
{
    struct slice rest = slice_of(path.p, (size_t)(req->target.p + req->target.n - path.p));
    struct slice accept;

    if ((req->method != METHOD_GET && req->method != METHOD_HEAD) || !r->anonymous_read ||
        path.p == NULL || rest.n > HOT_NAME_BYTES) {
        return SLICE_NONE;
    }
    /* Documents and listings depend on Accept; files, nearly all of the traffic, do not. */
    if (r->ops->rewrite != NULL || r->origin == NULL) {
        accept = http_req_list(req, "accept");
        return accept.n > HOT_NAME_BYTES ? SLICE_NONE
                                         : arena_fmt(req->arena, "%s/" SLICE_FMT " " SLICE_FMT,
                                                     r->name, SLICE_ARG(rest), SLICE_ARG(accept));
    }
    return arena_fmt(req->arena, "%s/" SLICE_FMT, r->name, SLICE_ARG(rest));
}

static bool from_hot(struct desk *d, struct exchange *x, struct visit *v, struct repo *r,
                     struct slice name)
{
    struct hot *h = name.p != NULL ? hot_find(d->hot, r, name, d->loop->unix_s) : NULL;

    if (h == NULL || (h->fresh_until_unix_s != UINT64_MAX && wants_fresh(exchange_req(x)))) {
        return false;
    }
    v->repo = r;
    v->cached = r->origin != NULL;
    v->state = CACHE_HIT;
    v->hot = hot_hold(h);
    if (h->answer != NULL && h->answer->digest_known) {
        blob_touch(d->daemon->store, &h->answer->digest, d->loop->unix_s);
    }
    reply_send(x, v, h);
    return true;
}

/* Sends a freshly resolved answer, and keeps it for the next when nothing forbids. Takes h. Behind a filling one are bytes
 * that may yet not come. */
static void send_resolved(struct call *c, struct hot *h, bool keep)
{
    /* Resolved before somebody forgot a key: it may be that very key's old answer. */
    keep = keep && h->name.n != 0 && h->fresh_until_unix_s > c->desk->loop->unix_s &&
           c->generation == c->desk->generation;
    if (keep) {
        hot_add(c->desk->hot, h);
    }
    opening_wait(c, h);
}

/* ================================================================== what plans come to ==== */

static bool only_reads(struct call *c)
{
    if (c->req.method == METHOD_GET || c->req.method == METHOD_HEAD) {
        return true;
    }
    refuse_method(c->x, SLICE("GET, HEAD"), SLICE("this path takes GET and HEAD\n"));
    return false;
}

static void send_rewritten(struct call *c, struct answer *a);

static void on_want_answer(struct call *c, struct answer *a)
{
    struct slice name = hot_name(&c->req, c->repo, c->path);

    c->visit->cached = true;
    c->visit->state = a->state;
    if (a->status != 200) {
        reply_status(c, a);
        answer_release(&a);
    } else if (c->plan.rewrite) {
        send_rewritten(c, a);
    } else {
        /* A filling answer is not kept: when it is sealed it is found again, as a hit. */
        bool keep = a->blob != NULL && a->state != CACHE_STALE;
        send_resolved(c, reply_resolve(c, name, c->plan.want.key, a, NULL), keep);
    }
}

static void execute_want(struct call *c)
{
    struct want *w = &c->plan.want;
    bool suffix = false;

    if (!only_reads(c)) {
        return;
    }
    w->refresh = w->refresh || wants_fresh(&c->req);
    w->document = c->plan.rewrite;
    w->head_only = c->req.method == METHOD_HEAD && !c->plan.rewrite;
    w->hint_first = 0;
    w->hint_end = LENGTH_UNKNOWN;
    if (!c->plan.rewrite && c->req.method == METHOD_GET &&
        range_peek(&c->req, &w->hint_first, &w->hint_end, &suffix) && suffix) {
        w->hint_first =
            0; /* the total is not known yet, and suffix ranges are never sent upstream */
        w->hint_end = LENGTH_UNKNOWN;
    }
    call_want(c, w, on_want_answer);
}

/* --- rewritten documents --- */

struct rewriting {
    const struct repo *repo;
    struct plan plan;
    struct daemon *daemon;
    struct answer *answer; /* for its type, age and url */
    struct rewrite_out out;
    char etag[32 + 3]; /* half the digest is tag enough */
};

/* What the page tells of its files. It is rewritten again and again, and seldom says anything new; when it takes back what
 * it told, answers that were resolved by that are void. */
static int keep_rows(struct rewriting *w, struct err *e)
{
    bool replaces;
    int rc;

    if (w->out.rows == NULL || batch_prune(w->out.rows, w->daemon->store, &replaces)) {
        return 0;
    }
    rc = store_commit(w->daemon->store, &w->out.rows, COMMIT_LAZY, e);
    if (replaces) {
        daemon_repo_changed(w->daemon, slice_str(w->repo->name));
    }
    return rc;
}

static int rewrite_work(void *arg, struct slice bytes, struct err *e)
{
    struct rewriting *w = arg;
    char hex[DIGEST_HEX + 1];
    struct digest d;
    int rc = w->repo->ops->rewrite(w->repo, &w->plan, bytes, w->answer->content_type,
                                   w->answer->url, &w->out, e);

    if (rc == 0) {
        rc = keep_rows(w, e);
    }
    if (rc == 0) {
        digest_of(buf_slice(&w->out.body), &d);
        digest_format(&d, hex);
        snprintf(w->etag, sizeof w->etag, "\"%.32s\"", hex);
    }
    return rc == 0 ? 0 : err_prefix(e, "the origin's index page cannot be used");
}

static void rewrite_done(void *arg, struct call *c, int rc, const struct err *why)
{
    struct rewriting *w = arg;
    struct answer *a = w->answer;
    struct hot *h;

    if (rc != 0) {
        log_warn("serve.rewrite_failed", "repo=%s why=\"%s\"", c->repo->name, why->text);
        reply_trouble(c, rc, why);
        return;
    }
    h = reply_resolve(c, hot_name(&c->req, c->repo, c->path), c->plan.want.key, NULL, NULL);
    h->bytes = w->out.body;
    w->out.body = BUF_INIT(0);
    h->valid.etag = arena_copy(&h->arena, slice_str(w->etag));
    h->valid.total_bytes = h->bytes.n;
    h->stored_unix_s = a->stored_unix_s;
    h->fresh_until_unix_s = a->fresh_until_unix_s;
    reply_add(&h->reply, SLICE("etag"), h->valid.etag);
    reply_add(&h->reply, SLICE("content-type"), w->out.content_type);
    send_resolved(c, h, a->state != CACHE_STALE);
}

static void rewrite_free(void *arg)
{
    struct rewriting *w = arg;

    answer_release(&w->answer);
    batch_free(&w->out.rows);
    buf_free(&w->out.body);
    free(w);
}

static void send_rewritten(struct call *c, struct answer *a)
{
    static const struct document_work work = {rewrite_work, rewrite_done, rewrite_free};
    struct rewriting *w = NEW(struct rewriting);

    w->repo = c->repo;
    w->plan = c->plan;
    w->daemon = c->desk->daemon;
    w->answer = answer_hold(a);
    w->out.body = BUF_INIT((size_t)c->set->conf->cache.document_bytes * 2);
    document_read(c, a, &work, w);
}

/* --- blobs of trees --- */

struct blob_step {
    struct step step;
    struct digest digest;
    struct blob *blob;
};

static void blob_work(struct step *s)
{
    struct blob_step *b = (struct blob_step *)s;
    s->rc = blob_open(s->call->desk->daemon->store, &b->digest, &b->blob, &s->why);
}

static void blob_done(struct step *s)
{
    struct blob_step *b = (struct blob_step *)s;
    struct call *c = s->call;

    if (s->rc != 0) {
        log_error("serve.blob_missing", "repo=%s path=" SLICE_FMT " why=\"%s\"", c->repo->name,
                  SLICE_ARG(c->path), s->why.text);
        /* 404 only when it went since its tree was read: damage must not look like "never was". */
        refuse(c->x, s->rc == E_NOTFOUND ? 404 : 500, "%s: %s\n", err_plain(s->rc), s->why.text);
        return;
    }
    send_resolved(
        c, reply_resolve(c, hot_name(&c->req, c->repo, c->path), c->plan.entry.path, NULL, b->blob),
        true);
    b->blob = NULL;
}

static void blob_free(struct step *s)
{
    blob_release(&((struct blob_step *)s)->blob);
}

static void execute_blob(struct call *c)
{
    struct blob_step *b;

    if (!only_reads(c)) {
        return;
    }
    b = NEW(struct blob_step);
    b->digest = c->plan.entry.digest;
    b->step.work = blob_work;
    b->step.done = blob_done;
    b->step.free = blob_free;
    call_step(c, c->desk->daemon->readers, &b->step);
}

/* --- folder listings of trees --- */

struct list_step {
    struct step step;
    struct buf body;
    struct slice content_type;
};

static void list_work(struct step *s)
{
    struct list_step *l = (struct list_step *)s;
    s->rc = hosted_listing(s->call->desk->daemon->store, s->call->repo, &s->call->plan, &l->body,
                           &l->content_type, &s->why);
}

static void list_done(struct step *s)
{
    struct list_step *l = (struct list_step *)s;
    struct call *c = s->call;
    struct hot *h;

    if (s->rc != 0) {
        refuse(c->x, s->rc == E_NOTFOUND ? 404 : 500, "%s: %s\n", err_plain(s->rc), s->why.text);
        return;
    }
    h = reply_resolve(c, SLICE(""), SLICE(""), NULL, NULL);
    h->bytes = l->body;
    l->body = BUF_INIT(0);
    h->valid.total_bytes = h->bytes.n;
    reply_add(&h->reply, SLICE("content-type"), l->content_type);
    reply_add(&h->reply, SLICE("vary"), SLICE("accept"));
    send_resolved(c, h, false);
}

static void list_free(struct step *s)
{
    buf_free(&((struct list_step *)s)->body);
}

static void execute_list(struct call *c)
{
    struct list_step *l;

    if (!only_reads(c)) {
        return;
    }
    l = NEW(struct list_step);
    l->body = BUF_INIT(256 << 20);
    l->step.work = list_work;
    l->step.done = list_done;
    l->step.free = list_free;
    call_step(c, c->desk->daemon->readers, &l->step);
}

/* --- refusals and redirects --- */

static void execute_reply(struct call *c)
{
    struct http_reply *r = ARENA_NEW(&c->arena, struct http_reply);

    r->status = c->plan.status;
    if (c->plan.allow.p != NULL) {
        reply_add(r, SLICE("allow"), c->plan.allow);
    }
    if (c->plan.location.p != NULL) {
        reply_add(r, SLICE("location"), c->plan.location);
    }
    reply_add(r, SLICE("content-type"),
              c->plan.content_type.p != NULL ? c->plan.content_type
                                             : SLICE("text/plain; charset=utf-8"));
    exchange_reply(c->x, r, body_of_bytes(c->plan.text));
}

/* ================================================================== the end of a visit ==== */

static void on_end(void *arg, struct exchange *x, const struct exchange_end *end)
{
    struct desk *d = exchange_loop(x)->local;
    struct visit *v = exchange_user(x);
    struct access_entry entry;
    struct traffic_event event;

    (void)arg;
    if (v == NULL) {
        return; /* refused by the parser */
    }
    entry = (struct access_entry){
        .req = exchange_req(x),
        .who = &v->who,
        .repo = v->repo != NULL ? slice_str(v->repo->name) : SLICE_NONE,
        .cache = v->cached ? reply_cache_status(v->state) : "",
        .status = end->status,
        .bytes = end->body_bytes,
        .took_ns = end->took_ns,
        .first_ns = end->first_ns,
        .complete = end->complete,
    };
    access_log_write(d->daemon->access, &entry);
    event = (struct traffic_event){
        .repo = v->repo != NULL ? v->repo->slot : TRAFFIC_OWN,
        .status = end->status,
        .state = v->cached ? v->state : TRAFFIC_UNCACHED,
        .bytes = end->body_bytes,
        .took_ns = end->took_ns,
        .complete = end->complete,
    };
    traffic_add(d->daemon->traffic, d->loop->index, &event);
    hot_release(&v->hot);
    pace_release(&v->pace);
    gate_release(d->daemon->gate, &v->who);
    if (v->call != NULL) {
        v->call->x = NULL;
        call_release(&v->call);
    }
}

/* ================================================================== desks ==== */

struct serve *serve_open(struct daemon *d)
{
    struct serve *s = NEW(struct serve);
    unsigned n = loops_count(d->loops);

    s->daemon = d;
    s->desk = mem_array(n, sizeof s->desk[0]);
    for (unsigned i = 0; i < n; i++) {
        struct desk *k = &s->desk[i];
        k->serve = s;
        k->daemon = d;
        k->loop = loops_at(d->loops, i);
        k->hot = hot_open(HOT_ENTRIES, HOT_BYTES);
        k->set = repo_set_hold(d);
        k->loop->local = k; /* before the first connection: no loop looks at it yet */
    }
    return s;
}

static bool on_connect(void *arg, const struct sockaddr_storage *peer)
{
    struct serve *s = arg;
    return gate_connect(s->daemon->gate, peer);
}

static void on_disconnect(void *arg, const struct sockaddr_storage *peer)
{
    struct serve *s = arg;
    gate_disconnect(s->daemon->gate, peer);
}

struct exchange_handler serve_handler(struct serve *s)
{
    return (struct exchange_handler){.on_connect = on_connect,
                                     .on_disconnect = on_disconnect,
                                     .on_request = on_request,
                                     .on_end = on_end,
                                     .arg = s};
}

static void settle(struct loop *l, void *arg)
{
    struct desk *k = l->local;

    (void)arg;
    repo_set_release(&k->set);
    k->set = repo_set_hold(k->daemon);
}

void serve_settle(struct serve *s)
{
    loops_each(s->daemon->loops, settle, s);
}

struct forget {
    struct slice repo;
    struct slice key;
    _Atomic unsigned left;
    char text[];
};

static void forget(struct loop *l, void *arg)
{
    struct forget *f = arg;
    struct desk *k = l->local;

    k->generation++;
    if (k->hot != NULL) { /* emptied already, when the last fills end with the daemon */
        hot_forget(k->hot, f->repo, f->key);
    }
    if (atomic_fetch_sub(&f->left, 1) == 1) {
        free(f);
    }
}

void serve_forget(struct serve *s, struct slice repo, struct slice key)
{
    struct forget *f = mem_new(sizeof *f + repo.n + key.n + 1);

    memcpy(f->text, repo.p, repo.n);
    f->repo = slice_of(f->text, repo.n);
    if (key.p != NULL) {
        memcpy(f->text + repo.n, key.p, key.n);
        f->key = slice_of(f->text + repo.n, key.n);
    }
    f->left = loops_count(s->daemon->loops);
    loops_each(s->daemon->loops, forget, f);
}

struct quiet {
    struct lock lock;
    struct cond all;
    unsigned left;
};

static void empty_when_quiet(struct desk *k)
{
    struct quiet *q = k->quiet;

    if (q == NULL || k->flows != 0) {
        return;
    }
    hot_close(&k->hot);
    repo_set_release(&k->set);
    lock_take(&q->lock);
    if (--q->left == 0) {
        cond_signal(&q->all);
    }
    lock_drop(&q->lock);
}

void desk_flow_over(struct desk *k)
{
    k->flows--;
    empty_when_quiet(k);
}

static void empty_desk(struct loop *l, void *arg)
{
    struct desk *k = l->local;

    k->quiet = arg;
    empty_when_quiet(k);
}

void serve_quiet(struct serve *s)
{
    struct quiet q = {.left = loops_count(s->daemon->loops)};

    lock_init(&q.lock, LOCK_LEAF);
    cond_init(&q.all);
    loops_each(s->daemon->loops, empty_desk, &q);
    lock_take(&q.lock);
    while (q.left != 0) {
        cond_wait(&q.all, &q.lock);
    }
    lock_drop(&q.lock);
    cond_fini(&q.all);
    lock_fini(&q.lock);
}

void serve_close(struct serve **sp)
{
    struct serve *s = *sp;

    if (s != NULL) {
        *sp = NULL;
        free(s->desk);
        free(s);
    }
}
