#include "server/request/serve.h"

#include "server/http/status.h"
#include "server/request/frontend.h"
#include "server/request/index.h"
#include "server/request/put.h"
#include "server/request/refusal.h"
#include "server/request/relay.h"
#include "server/request/reply.h"
#include "server/request/response.h"
#include "server/request/tree.h"
#include "server/request/whole.h"
#include "server/request/wording.h"

/* ================================================================== the pipeline, from the top
 * ==== */

static void on_request(void *arg, struct exchange *x); /* listen, parse: http brings us here */
static bool pass_request_gate(struct serve_loop *d, struct exchange *x, struct request_log *v,
                              bool ours); /* gate */
static bool from_response_cache(struct serve_loop *d, struct exchange *x, struct request_log *v,
                                struct repo *r, struct slice name);
/* plan (plan/run.h), until it needs nothing more; then one of these */
static void execute_lookup(struct request *c); /* cache */
static void execute_reply(struct request *c);  /* refusal, redirect */
/* and at the very end */
static void on_exchange_end(void *arg, struct exchange *x, const struct exchange_end *end);

static bool is_below(struct slice path, const char *root)
{
    size_t n = strlen(root);

    return slice_starts(path, slice_of(root, n)) && (path.n == n || path.p[n] == '/');
}

static const struct frontend *frontend_of(const struct frontend *const *doors,
                                          const struct http_req *req)
{
    while ((*doors)->root != NULL && !is_below(req->path, (*doors)->root)) {
        doors++;
    }
    return *doors;
}

static void on_request(void *arg, struct exchange *x)
{
    struct serve_loop *d = exchange_loop(x)->local;
    const struct http_req *req = exchange_req(x);
    struct request_log *v = ARENA_NEW(exchange_arena(x), struct request_log);
    struct forwarded behind;
    struct route to;

    (void)arg;
    exchange_set_user(x, v);
    v->frontend = frontend_of(d->serve->doors, req);
    if (!relay_accept(d, x, v)) {
        return;
    }
    if (!v->relayed && gate_client(d->deps->gate, req, &behind)) {
        exchange_forwarded(x, &behind.peer, behind.tls, behind.host);
    }
    if (exchange_is_spare(x) && (v->frontend->vital == NULL || !v->frontend->vital(req))) {
        refuse_busy(x, "all connections that this server accepts are in use; try again later\n");
        return;
    }
    to = v->frontend->route(d, x);
    if (!pass_request_gate(d, x, v, to.repo == NULL)) {
        return;
    }
    if (to.repo == NULL) {
        v->frontend->answer(d, x, v, &to);
    } else if (from_response_cache(
                   d, x, v, to.repo,
                   cached_response_name(req, to.repo, to.path, v->frontend->by_target))) {
        return;
    } else {
        struct request *c = request_new(d, x, v, to.repo, to.path);
        if (c != NULL) {
            request_advance(c);
        }
    }
}

static bool takes_method(struct request *c);

static bool admit(void *arg)
{
    return request_count_made(arg) && request_allowed(arg) && takes_method(arg);
}

static void on_control_body(struct request *c, int rc, struct slice body)
{
    c->control_body = body;
    plan_run_body(&c->run, rc, body);
}

static void read_body(void *arg)
{
    request_body(arg, BODY_BYTES, on_control_body);
}

static void on_refused(void *arg, int rc, const struct err *why)
{
    struct request *c = arg;
    struct http_reply *r = ARENA_NEW(&c->arena, struct http_reply);

    r->status = status_of_error(rc, STATUS_REQUEST);
    reply_add(r, SLICE("cache-control"), SLICE("no-store"));
    reply_failure(c, r, arena_copy(&c->arena, slice_str(why->text)));
}

static void on_failed(void *arg, int rc, const struct err *why)
{
    reply_trouble(arg, rc, why);
}

static void on_no_memory(void *arg)
{
    struct request *c = arg;

    refuse_memory(c->x);
}

static void execute_plan(struct request *c)
{
    switch (c->plan.kind) {
    case PLAN_DEPENDENCY:
        CHECK(c->plan.kind != PLAN_DEPENDENCY);
        return;
    case PLAN_LOOKUP:
        execute_lookup(c);
        return;
    case PLAN_BLOB:
        tree_send_file(c);
        return;
    case PLAN_LIST:
        tree_send_listing(c);
        return;
    case PLAN_PUT:
        put_start(c);
        return;
    case PLAN_REPLY:
        execute_reply(c);
        return;
    }
}

static void on_planned(void *arg)
{
    struct request *c = arg;

    if (c->plan.kind == PLAN_REPLY && !request_count_made(c)) { /* other plans were admitted */
        return;
    }
    if (!relay_start(c, execute_plan)) {
        execute_plan(c);
    }
}

void request_advance(struct request *c)
{
    static const struct plan_events events = {.admit = admit,
                                              .body = read_body,
                                              .planned = on_planned,
                                              .refused = on_refused,
                                              .failed = on_failed,
                                              .no_memory = on_no_memory};

    c->request_log->repo = c->repo;
    plan_run_start(&c->run, &events, c);
}

/* ================================================================== gate ==== */

static bool pass_request_gate(struct serve_loop *d, struct exchange *x, struct request_log *v,
                              bool ours)
{
    const struct http_req *req = exchange_req(x);
    struct gate_decision g = {.pass = true};
    struct err why = {0};

    int rc = gate_identify(d->deps->gate, req, &v->who, &why);

    if (rc == E_AGAIN) {
        refuse_busy(x, why.text);
        return false;
    }
    if (rc != 0) {
        v->frontend->refuse_token(d, x, why.text);
        return false;
    }
    exchange_set_client(x, v->who.client);
    if (refuse_cross_site(x, req, d->set->conf->public_url)) {
        return false;
    }
    if (!v->relayed && (!ours || v->frontend->counted(req))) { /* else it was counted there */
        gate_spend(d->deps->gate, &v->who, req->peer, d->loop->now_ms, &g);
    }
    if (!g.pass) {
        v->frontend->refuse_rate_limited(x, &g);
        return false;
    }
    v->pace = g.pace;
    return true;
}

/* 401 or 403, in words that the repo's clients understand. */
static void forbid(struct request *c, int status, struct slice why)
{
    struct http_reply *r = ARENA_NEW(&c->arena, struct http_reply);

    r->status = status;
    if (status == 401) {
        c->request_log->frontend->challenge(&c->req, c->set->conf, c->plan.right == RIGHT_PUBLISH,
                                            &c->arena, r);
    }
    reply_failure(c, r, why);
}

/* The scope to ask for: of a hosted repo it is the whole tree that `subject` is in, of another the
 * whole repo. */
static struct slice scope_wanted(struct request *c, const char *right, struct slice subject)
{
    struct slice rest = subject, part = slice_cut(&rest, '/');
    size_t deps = c->repo->shown_origin == NULL ? 2 : 0; /* below the repo: OWNER/NAME */

    while (deps > 0 && rest.n > 0) {
        part = slice_cut(&rest, '/');
        deps -= !slice_eqs(part, "datasets") && !slice_eqs(part, "spaces");
    }
    return arena_fmt(&c->arena, "%s:" SLICE_FMT "/*", right,
                     SLICE_ARG(slice_of(subject.p, (size_t)(part.p + part.n - subject.p))));
}

bool request_allowed(struct request *c)
{
    bool publish = c->plan.right == RIGHT_PUBLISH || c->plan.right == RIGHT_TOKEN;
    const char *right = publish ? "publish" : "read";
    struct slice lacks = c->plan.subject;

    if (gate_allows(&c->who, right, lacks) && c->plan.also.p != NULL) {
        lacks = c->plan.also;
    }
    if (c->plan.right == RIGHT_KNOWN || (c->plan.right == RIGHT_TOKEN && c->who.token != NULL) ||
        (!publish && c->repo->anonymous_read) || gate_allows(&c->who, right, lacks)) {
        return true;
    }
    if (c->who.token == NULL) {
        forbid(c, 401,
               arena_fmt(
                   &c->arena,
                   "%s requires a token; ask this mirror's operator for one with scope " SLICE_FMT
                   " (`mirrorctl token create`)",
                   publish ? "publishing" : "this repo", SLICE_ARG(scope_wanted(c, right, lacks))));
    } else {
        forbid(c, 403,
               arena_fmt(&c->arena,
                         "token " SLICE_FMT " has no scope for this: it needs %s:" SLICE_FMT,
                         SLICE_ARG(c->who.name), right, SLICE_ARG(lacks)));
    }
    return false;
}

static void refuse_reading(struct request *c)
{
    struct http_reply *r = ARENA_NEW(&c->arena, struct http_reply);

    r->status = 405;
    reply_add(r, SLICE("allow"), SLICE("GET, HEAD"));
    reply_failure(c, r, SLICE("this path accepts GET and HEAD only"));
}

/* What is there to be read takes no other. */
static bool takes_method(struct request *c)
{
    enum plan_kind k = c->plan.kind;

    if ((k != PLAN_LOOKUP && k != PLAN_BLOB && k != PLAN_LIST) ||
        (k == PLAN_LIST && c->plan.posted) || c->req.method == METHOD_GET ||
        c->req.method == METHOD_HEAD) {
        return true;
    }
    refuse_reading(c);
    return false;
}

/* ================================================================== resolved answers ==== */

/* Has a token with sync: for something of the repo: its no-cache may ask the origin at any time. */
static bool may_refresh(const struct principal *who, const struct repo *r)
{
    struct slice prefix;
    size_t at = 0;

    return gate_reaches(who, "sync", slice_str(r->name), &at, &prefix);
}

static bool new_enough(const struct cached_response *h, const struct http_req *req,
                       const struct principal *who, uint64_t now)
{
    struct request_cache_control d;

    if (h->fresh_until_unix_s == UINT64_MAX) {
        return true;
    }
    request_cache_control_read(req, &d);
    if (d.refresh && may_refresh(who, h->repo)) {
        return false;
    }
    if (h->floor_s == FLOOR_NEVER || now < h->stored_unix_s + h->floor_s) {
        return true;
    }
    return !d.refresh && !request_cache_control_refuses(&d, now - min_u64(now, h->stored_unix_s),
                                                        h->fresh_until_unix_s - now);
}

static bool from_response_cache(struct serve_loop *d, struct exchange *x, struct request_log *v,
                                struct repo *r, struct slice name)
{
    struct cached_response *h =
        name.p != NULL ? response_cache_find(d->cached_response, r, name, d->loop->unix_s) : NULL;

    if (h == NULL || !cached_response_serves(h, exchange_req(x)) ||
        !new_enough(h, exchange_req(x), &v->who, d->loop->unix_s)) {
        return false;
    }
    v->repo = r;
    v->cached = r->origin != NULL && !r->synced && (h->answer != NULL || h->rendering != NULL);
    v->state = CACHE_HIT;
    v->cached_response = cached_response_hold(h);
    if (h->answer != NULL && h->answer->digest_known) {
        blob_touch(d->deps->store, &h->answer->digest, d->loop->unix_s);
    }
    reply_send(x, v, h);
    return true;
}

/* ================================================================== what plans come to ==== */

static void changed(struct request *c)
{
    struct err why;

    if (!request_changed(c)) {
        reply_trouble(c,
                      err_set(&why, E_CHANGED,
                              "the origin does not send the bytes that it lists: the file is "
                              "changing now, or its response does not say which bytes it has"),
                      &why);
    }
}

static void on_lookup_answer(struct request *c, struct answer *a)
{
    struct slice name = request_cached_name(c);

    c->request_log->cached = true;
    c->request_log->state = c->plan.cached && a->state == CACHE_HIT ? c->plan.state : a->state;
    if (a->status == 412 && c->plan.lookup.content.p != NULL) {
        answer_release(&a);
        changed(c);
    } else if (a->status != 200) {
        reply_status(c, a);
        answer_release(&a);
    } else if (c->plan.delivery == DELIVERY_REWRITTEN) {
        index_send(c, a);
    } else if (c->plan.delivery == DELIVERY_WHOLE) {
        whole_send(c, a);
    } else {
        /* A filling answer is not kept: when it is sealed it is found again, as a hit. */
        bool keep = a->blob != NULL && !cache_state_is_stale(a->state);
        request_send(c, response_of_object(c, name, c->plan.lookup.key, a, NULL), keep);
    }
}

static void say_state(struct request *c)
{
    c->request_log->cached = c->plan.cached;
    c->request_log->state = c->plan.state;
}

static void execute_lookup(struct request *c)
{
    struct lookup *w = &c->plan.lookup;
    bool whole = c->plan.delivery != DELIVERY_STREAM;

    if (c->plan.fields_of == FIELDS_KNOWN && c->req.method == METHOD_HEAD) {
        say_state(c);
        request_send(c, response_known(c), true);
        return;
    }
    request_cache_control_read(&c->req, &w->request_cache_control);
    if (plan_run_forces_refresh(&c->run, c->plan.subject)) {
        w->floor_s = 0;
    }
    w->document = whole;
    w->head_only = c->req.method == METHOD_HEAD && !whole;
    if (whole) {
        w->hint_first = w->hint_suffix = 0;
        w->hint_end = LENGTH_UNKNOWN;
    } else {
        request_hint(&c->req, c->plan.framing, w);
    }
    request_lookup(c, w, on_lookup_answer);
}

/* --- refusals, redirects, documents of ours --- */

enum { KEPT_TEXT_BYTES = 8 << 20 };

static void execute_reply(struct request *c)
{
    struct http_reply *r = ARENA_NEW(&c->arena, struct http_reply);
    struct slice body = c->plan.text;

    say_state(c);
    if (c->plan.word != NULL) {
        wording_send(c);
        return;
    }
    if (c->plan.reuse == REUSE_KEPT && c->plan.text.n <= KEPT_TEXT_BYTES) {
        request_send(c, response_of_text(c, NULL), true);
        return;
    }
    r->status = c->plan.status;
    if (c->plan.allow.p != NULL) {
        reply_add(r, SLICE("allow"), c->plan.allow);
    }
    if (c->plan.location.p != NULL) {
        reply_add(r, SLICE("location"), c->plan.location);
    }
    if (c->plan.content_type.p == NULL && r->status >= 400 && c->plan.nfields == 0) {
        body = refusal_words(&c->req, body, &c->arena, r);
    } else {
        reply_add(r, SLICE("content-type"),
                  c->plan.content_type.p != NULL ? c->plan.content_type
                                                 : SLICE("text/plain; charset=utf-8"));
    }
    for (size_t i = 0; i < c->plan.nfields; i++) {
        reply_add(r, c->plan.fields[i].name, c->plan.fields[i].value);
    }
    if (c->plan.cached) {
        reply_add(r, SLICE("cache-status"), slice_str(reply_cache_status(c->plan.state)));
    }
    exchange_reply(c->x, r, body_of_bytes(body));
}

/* ================================================================== the end of a visit ==== */

static void on_exchange_end(void *arg, struct exchange *x, const struct exchange_end *end)
{
    struct serve_loop *d = exchange_loop(x)->local;
    struct request_log *v = exchange_user(x);
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
    access_log_write(d->deps->access, d->loop->index, &entry);
    event = (struct traffic_event){
        .repo = v->repo != NULL ? v->repo->slot : TRAFFIC_OWN,
        .status = end->status,
        .state = v->cached ? v->state : TRAFFIC_UNCACHED,
        .bytes = end->body_bytes,
        .took_ns = end->took_ns,
        .complete = end->complete,
    };
    traffic_add(d->deps->traffic, d->loop->index, &event);
    cached_response_release(&v->cached_response);
    pace_release(&v->pace);
    gate_release(d->deps->gate, &v->who);
    if (v->request != NULL) {
        v->request->x = NULL;
        request_release(&v->request);
    }
}

/* ================================================================== for http ==== */

static bool on_connect(void *arg, const struct sockaddr_storage *peer)
{
    struct serve *s = arg;
    return gate_connect(s->deps.gate, peer);
}

static void on_disconnect(void *arg, const struct sockaddr_storage *peer)
{
    struct serve *s = arg;
    gate_disconnect(s->deps.gate, peer);
}

struct exchange_handler serve_handler(struct serve *s)
{
    return (struct exchange_handler){.on_connect = on_connect,
                                     .on_disconnect = on_disconnect,
                                     .on_request = on_request,
                                     .on_end = on_exchange_end,
                                     .arg = s};
}
