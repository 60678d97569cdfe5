#include "server/fetch/fetch.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdlib.h>

#include "common/base/list.h"
#include "common/os/clock.h"
#include "common/xfer/xfer.h"
#include "server/fetch/bearer.h"
#include "server/fetch/content_range.h"
#include "server/fetch/lane.h"
#include "server/fetch/origin_priv.h"
#include "server/fetch/refusal.h"
#include "server/fetch/rest.h"

enum {
    FETCH_MAGIC = 0x66657463,
    HOPS_MAX = 5,
    TRIES = 3,              /* of a request that got no head */
    BACKOFF_MS = 250,       /* doubled each time, with jitter */
    PATIENCE_MS = 10000,    /* a Retry-After up to this is waited for; clients give up soon after */
    SWALLOW_BYTES = 65536,  /* of a redirect's or a refusal's body, so that the connection stays */
    STALL_BYTES_PER_S = 64, /* slower than this for stall_ms is a stall */
    FIELDS_MAX = 256,
    LINES_MAX = 9 + ORIGIN_LINES,
    SLOWLY_MS = 500, /* a bucket's 503 says "slow down" and not for how long; doubled each time */
};

struct fetcher {
    struct event_base *base;
    struct xfer_loop *xfers;
    struct list lanes;
    uint64_t seed;
};

struct fetch {
    uint32_t magic;
    struct fetcher *fetcher;
    struct lane *lane;
    struct lane_seat seat;
    struct origin *origin; /* held */
    struct arena arena;
    struct fetch_want want;
    struct fetch_events ev;
    void *arg;
    struct xfer *xfer;
    struct event *timer; /* a retry, or bad news that may not be told inside fetch_start() */
    struct buf url;      /* of this hop */
    struct buf via;      /* of the hop before */
    bool via_set;
    bool trusted; /* this hop's host may stand at any address */
    bool home;    /* this hop's host is the origin's own */
    bool swallow; /* this answer is not for the caller */
    bool follow;  /* ... it leads elsewhere: next_url */
    bool head_given;
    bool held_by_user;
    bool held_by_rate;
    bool in_event;
    bool dead; /* cancelled inside an event: freed when that returns */
    unsigned hops;
    unsigned tries;
    uint64_t wait_ms; /* of the answer that is swallowed */
    uint64_t swallowed_bytes;
    uint64_t got_bytes;
    uint64_t due_bytes;      /* of a 206 */
    struct refusal *refusal; /* a bucket's no, while its reason comes; else NULL */
    int rc;                  /* bad news on its way */
    struct err why;
    struct bearer_wait token; /* one is awaited */
    uint64_t token_number;    /* of the one that was shown; 0: none */
    bool challenged;          /* the origin has asked for one: not twice */
};

static void fetch_begin(struct fetch *x);

/* --- one fetch's life --------------------------------------------------------------------------------------------- */

static void timer_in(struct event *t, uint64_t ms)
{
    struct timeval tv = clock_timeval(ms);
    evtimer_add(t, &tv);
}

static void fetch_free(struct fetch *x)
{
    struct lane *l = x->lane;

    xfer_cancel(&x->xfer);
    refusal_free(&x->refusal);
    list_remove_if(&x->token.node);
    lane_leave(l, &x->seat);
    origin_free(&x->origin); /* before the lane looks whether it is the last to hold it */
    lane_drop_if_idle(l);
    event_free(x->timer);
    buf_free(&x->url);
    buf_free(&x->via);
    arena_fini(&x->arena);
    x->magic = 0;
    free(x);
}

static void finish(struct fetch *x, int rc, const struct err *why)
{
    if (rc != 0 && rc != E_CANCELLED) {
        atomic_fetch_add_explicit(&x->origin->count->errors, 1, memory_order_relaxed);
    }
    lane_leave(x->lane, &x->seat); /* first: the caller may start its next one now */
    x->in_event = true;
    x->ev.on_done(x->arg, rc, why);
    fetch_free(x);
}

/* Bad news found outside an xfer's event is told from the loop. */
static void fail_soon(struct fetch *x, int rc)
{
    x->rc = rc;
    timer_in(x->timer, 0);
}

static void enqueue(struct fetch *x)
{
    uint64_t rest_ms = lane_resting_ms(x->lane);

    if (rest_ms > PATIENCE_MS) {
        fail_soon(x, err_set(&x->why, E_BUSY, "the origin asked for %" PRIu64 " s of rest",
                             (rest_ms + 999) / 1000));
        return;
    }
    lane_queue(x->lane, &x->seat);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct fetch *x = arg;

    (void)fd;
    (void)what;
    CHECK(x->magic == FETCH_MAGIC);
    if (x->rc != 0) {
        finish(x, x->rc, &x->why);
    } else if (x->xfer == NULL) {
        enqueue(x);
    } else {
        x->held_by_rate = false;
        if (!x->held_by_user) {
            xfer_resume(x->xfer);
        }
    }
}

static void retry_in(struct fetch *x, uint64_t ms)
{
    x->tries++;
    lane_leave(x->lane, &x->seat);
    timer_in(x->timer, ms);
}

/* --- the answer's head -------------------------------------------------------------------------------------------- */

/* One that leads nowhere is an answer like others. */
static bool redirects(const struct xfer_head *h)
{
    int s = h->status;

    return (s == 301 || s == 302 || s == 303 || s == 307 || s == 308) &&
           xfer_head_field(h, "location").p != NULL;
}

static int take_redirect(struct fetch *x, const struct xfer_head *h)
{
    struct slice to = xfer_head_field(h, "location");
    struct buf next = BUF_INIT(16384);
    int rc;

    if (x->want.body.n != 0) {
        return err_set(&x->why, E_PROTOCOL, "the origin redirects what is not a GET");
    }
    if (++x->hops > HOPS_MAX) {
        return err_set(&x->why, E_PROTOCOL, "more than %d redirects", HOPS_MAX);
    }
    rc = url_resolve(buf_slice(&x->url), to, &next, &x->why);
    if (rc == 0) {
        buf_clear(&x->via);
        buf_adds(&x->via, buf_slice(&x->url));
        buf_clear(&x->url);
        buf_adds(&x->url, buf_slice(&next));
        x->via_set = true;
        x->follow = x->swallow = true;
    }
    buf_free(&next);
    return rc;
}

/* A 206 must be what was asked: [first, min(end, total)). */
static int check_part(struct fetch *x, const struct xfer_head *h, struct fetch_head *out)
{
    struct content_range r;

    if (x->want.end == LENGTH_UNKNOWN) {
        return err_set(&x->why, E_PROTOCOL, "the origin sent a part (206), all was asked for");
    }
    if (!content_range_parse(xfer_head_field(h, "content-range"), &r)) {
        return err_set(&x->why, E_PROTOCOL, "the origin sent a part without a valid Content-Range");
    }
    if (r.first != x->want.first || r.end > x->want.end ||
        (r.end < x->want.end && r.end != r.total)) {
        return err_set(&x->why, E_PROTOCOL,
                       "asked for bytes %" PRIu64 "-%" PRIu64 ", the origin sent %" PRIu64
                       "-%" PRIu64,
                       x->want.first, x->want.end - 1, r.first, r.end - 1);
    }
    if (h->content_length != XFER_UNKNOWN && h->content_length != r.end - r.first) {
        return err_set(&x->why, E_PROTOCOL, "Content-Length and Content-Range disagree");
    }
    x->due_bytes = r.end - r.first;
    out->first = r.first;
    out->total = r.total;
    return 0;
}

static int give_head(struct fetch *x, const struct xfer_head *h, struct slice why)
{
    struct http_field fields[FIELDS_MAX];
    struct fetch_head out = {
        .status = h->status,
        .content_length = h->content_length == XFER_UNKNOWN ? LENGTH_UNKNOWN : h->content_length,
        .total = LENGTH_UNKNOWN,
        .framed = h->framed,
        .ranges = h->status == 206 ||
                  slice_ieq(slice_trim(xfer_head_field(h, "accept-ranges")), SLICE("bytes")),
        .fields = fields,
        .url = buf_slice(&x->url),
        .why = why,
    };
    int rc = h->status == 206 ? check_part(x, h, &out) : 0;

    if (rc != 0) {
        return rc;
    }
    if (h->status == 304 && x->want.if_none_match.p == NULL &&
        x->want.if_modified_since.p == NULL) {
        return err_set(&x->why, E_PROTOCOL, "the origin sent 304, nothing was conditional");
    }
    for (size_t i = 0; i < h->nfields && i < FIELDS_MAX; i++) {
        fields[out.nfields++] = (struct http_field){h->fields[i].name, h->fields[i].value};
    }
    x->head_given = true;
    return x->ev.on_head(x->arg, &out) != 0 ? E_CANCELLED : 0;
}

/* Does this hop go to where tokens are good? A caller's own credential stands for itself. */
static bool shows_tokens(const struct fetch *x)
{
    return x->home && x->origin->tokens && x->want.authorization.p == NULL;
}

/* Its noes have their reason in the body. */
static bool at_bucket(const struct fetch *x)
{
    return x->origin->s3 != NULL && x->home;
}

static int on_xfer_head(void *arg, const struct xfer_head *h)
{
    struct fetch *x = arg;
    uint64_t rest_ms = rest_asked_ms(h, clock_unix_s());
    int rc;

    CHECK(x->magic == FETCH_MAGIC);
    if (at_bucket(x) && h->status == 503 && rest_ms == 0) {
        rest_ms = (uint64_t)SLOWLY_MS << x->tries;
    }
    if (rest_ms > 0) {
        lane_rest(x->lane, rest_ms);
    }
    if (rest_is_asked(h->status) && rest_ms > 0 && rest_ms <= PATIENCE_MS && x->tries + 1 < TRIES) {
        x->swallow = true;
        x->wait_ms = rest_ms;
        return 0;
    }
    if (at_bucket(x) && refusal_is(h)) {
        x->refusal = refusal_new(h);
        return 0;
    }
    if (redirects(h)) {
        return take_redirect(x, h);
    }
    if (h->status == 401 && shows_tokens(x) && !x->challenged &&
        bearer_refused(lane_bearers(x->lane, x->fetcher->xfers), x->want.token_scope,
                       x->token_number, h, &x->why)) {
        x->challenged = x->follow = x->swallow = true;
        return 0;
    }
    if (x->why.code != 0) { /* its token server may not be asked */
        return x->why.code;
    }
    x->in_event = true;
    rc = give_head(x, h, SLICE_NONE);
    x->in_event = false;
    if (x->dead) {
        fetch_free(x);
        return E_CANCELLED;
    }
    return rc;
}

/* --- its body and its end ----------------------------------------------------------------------------------------- */

static int on_xfer_body(void *arg, struct slice bytes)
{
    struct fetch *x = arg;
    uint64_t pause_ms;
    int rc;

    CHECK(x->magic == FETCH_MAGIC);
    atomic_fetch_add_explicit(&x->origin->count->bytes, bytes.n, memory_order_relaxed);
    if (x->refusal != NULL) {
        refusal_add(x->refusal, bytes);
    }
    if (x->swallow || x->refusal != NULL) {
        x->swallowed_bytes += bytes.n;
        return x->swallowed_bytes > SWALLOW_BYTES ? E_TOOBIG : 0;
    }
    x->got_bytes += bytes.n;
    if (x->due_bytes != LENGTH_UNKNOWN && x->got_bytes > x->due_bytes) {
        return err_set(&x->why, E_PROTOCOL, "the origin sent more bytes than it announced");
    }
    pause_ms = lane_spend(x->lane, bytes.n);
    if (pause_ms > 0) {
        x->held_by_rate = true;
        timer_in(x->timer, pause_ms);
    }
    x->in_event = true;
    rc = x->ev.on_body(x->arg, bytes);
    x->in_event = false;
    if (x->dead) {
        fetch_free(x);
        return E_CANCELLED;
    }
    if (rc == FETCH_PAUSE) {
        x->held_by_user = true;
    } else if (rc != 0) {
        return E_CANCELLED;
    }
    return x->held_by_user || x->held_by_rate ? XFER_PAUSE : 0;
}

/* The reason has come, or broke off: the no is the caller's, or the end of it all. */
static void give_refusal(struct fetch *x)
{
    struct refusal *r = x->refusal;
    int rc = refusal_judge(r, x->origin->s3, &x->why);

    if (rc == 0) {
        struct slice why = SLICE_NONE;
        if (r->no.code[0] != '\0') {
            why = arena_fmt(&x->arena, "%s%s%s", r->no.code, r->no.message[0] != '\0' ? ": " : "",
                            r->no.message);
        }
        x->in_event = true;
        rc = give_head(x, &r->head, why);
        x->in_event = false;
        if (x->dead) {
            fetch_free(x);
            return;
        }
    }
    finish(x, rc, &x->why);
}

static void on_xfer_done(void *arg, int rc, const struct err *why, uint64_t body_bytes)
{
    struct fetch *x = arg;

    (void)body_bytes;
    CHECK(x->magic == FETCH_MAGIC);
    x->xfer = NULL;
    evtimer_del(x->timer);
    if (x->refusal != NULL) {
        give_refusal(x);
        return;
    }
    if (x->swallow) { /* its head has said all: a body cut short changes nothing */
        bool follow = x->follow;
        x->swallow = x->follow = false;
        x->swallowed_bytes = 0;
        if (follow) {
            fetch_begin(x); /* keeps its seat: the lane counts chains, not hops */
        } else {
            retry_in(x, x->wait_ms);
        }
        return;
    }
    if (x->why.code != 0) { /* ours says more than what xfer made of it */
        finish(x, x->why.code, &x->why);
    } else if (rc == 0 && x->due_bytes != LENGTH_UNKNOWN && x->got_bytes < x->due_bytes) {
        finish(x,
               err_set(&x->why, E_NETWORK, "the part was cut after %" PRIu64 " of %" PRIu64,
                       x->got_bytes, x->due_bytes),
               &x->why);
    } else if (rc == E_NETWORK && !x->head_given && x->tries + 1 < TRIES) {
        uint64_t ms = (uint64_t)BACKOFF_MS << x->tries;
        x->fetcher->seed = x->fetcher->seed * 6364136223846793005u + 1442695040888963407u;
        retry_in(x, ms / 2 + (x->fetcher->seed >> 33) % ms);
    } else {
        finish(x, rc, why);
    }
}

static bool on_admit(void *arg, const struct sockaddr *sa)
{
    struct fetch *x = arg;

    return x->trusted || !address_is_inside(sa);
}

static void on_turn(struct lane_seat *s)
{
    fetch_begin(CONTAINER_OF(s, struct fetch, seat));
}

static const struct xfer_events xfer_events = {on_xfer_head, on_xfer_body, on_xfer_done};

static void add_line(struct fetch *x, struct slice *lines, size_t *n, const char *name,
                     struct slice value)
{
    if (value.p != NULL) {
        lines[(*n)++] = arena_fmt(&x->arena, "%s: " SLICE_FMT, name, SLICE_ARG(value));
    }
}

/* There is a token now; or the token server's no, which is the origin's. */
static void on_token(struct bearer_wait *w, int rc, const struct err *why)
{
    struct fetch *x = CONTAINER_OF(w, struct fetch, token);
    struct xfer_head no = {.status = 401, .framed = true};

    CHECK(x->magic == FETCH_MAGIC);
    if (rc == 0) {
        enqueue(x);
        return;
    }
    if (rc == E_DENIED) {
        x->in_event = true;
        rc = give_head(x, &no, slice_str(why->text));
        x->in_event = false;
        if (x->dead) {
            fetch_free(x);
            return;
        }
    }
    finish(x, rc, why);
}

/* 1: one is on its way, on_token() goes on. Who waits has no seat: a token server that hangs for some keeps nobody whose token is
 * good from the origin. */
static int add_token(struct fetch *x, struct slice *lines, size_t *n)
{
    struct slice line;

    x->token_number = 0;
    if (!shows_tokens(x)) {
        return 0;
    }
    x->token.go = on_token;
    switch (bearer_get(lane_bearers(x->lane, x->fetcher->xfers), x->want.token_scope,
                       clock_now_ms(), &x->arena, &line, &x->token_number, &x->token)) {
    case BEARER_NONE:
        return 0;
    case BEARER_READY:
        lines[(*n)++] = line;
        return 0;
    case BEARER_WAIT:
        lane_leave(x->lane, &x->seat);
        return 1;
    }
    return 0;
}

/* A credential is for the origin's own scheme, host and port. */
static int add_credential(struct fetch *x, struct slice *lines, size_t *n)
{
    size_t before = *n;

    if (add_token(x, lines, n) != 0) {
        return 1;
    }
    if (*n != before) {
        return 0;
    }
    if (x->want.authorization.p != NULL && x->origin->s3 == NULL) {
        add_line(x, lines, n, "Authorization", x->want.authorization);
        return 0;
    }
    return origin_credential(x->origin, x->want.head, clock_unix_s(), &x->url, &x->arena, lines, n,
                             &x->why);
}

static void fetch_begin(struct fetch *x)
{
    const struct origin *o = x->origin;
    struct slice lines[LINES_MAX];
    struct xfer_want w = {
        .method = x->want.head          ? XFER_HEAD
                  : x->want.body.n != 0 ? XFER_POST
                                        : XFER_GET,
        .body = x->want.body,
        .url = buf_slice(&x->url),
        .fields = lines,
        .ranged = x->want.end != LENGTH_UNKNOWN,
        .range_first = x->want.first,
        .range_last = x->want.end - 1,
        .connect_timeout_ms = o->connect_ms,
        .idle_timeout_s = (o->stall_ms + 999) / 1000,
        .idle_bytes_per_s = STALL_BYTES_PER_S,
        .ca_file = o->ca_file,
        .proxy = o->proxy,
        .admit = on_admit,
    };
    struct url u;
    int rc = x->url.rc != 0
                 ? err_set(&x->why, E_TOOBIG, "its URL has more than %zu bytes", x->url.max)
                 : origin_admits(o, w.url, x->via_set ? buf_slice(&x->via) : x->want.via, &x->why);

    if (rc == 0) {
        rc = url_split(w.url, &u, &x->why);
    }
    if (rc != 0) {
        fail_soon(x, rc);
        return;
    }
    x->trusted = origin_trusts_address(o, &u);
    x->home = origin_is_home(o, &u);
    w.no_proxy = origin_no_proxy(o, &u);
    rc = x->home ? add_credential(x, lines, &w.nfields) : 0;
    if (rc > 0) {
        return;
    }
    if (rc != 0) {
        fail_soon(x, rc);
        return;
    }
    w.url = buf_slice(&x->url); /* signing has put it into another form */
    add_line(x, lines, &w.nfields, "Accept", x->want.accept);
    add_line(x, lines, &w.nfields, "Content-Type", x->want.body_type);
    add_line(x, lines, &w.nfields, "If-Range", x->want.if_range);
    add_line(x, lines, &w.nfields, "If-Match", x->want.if_match);
    add_line(x, lines, &w.nfields, "If-None-Match", x->want.if_none_match);
    add_line(x, lines, &w.nfields, "If-Modified-Since", x->want.if_modified_since);
    x->got_bytes = 0;
    x->due_bytes = LENGTH_UNKNOWN;
    atomic_fetch_add_explicit(&x->origin->count->requests, 1, memory_order_relaxed);
    x->xfer = xfer_start(x->fetcher->xfers, &w, &xfer_events, x);
}

/* --- the outside -------------------------------------------------------------------------------------------------- */

struct fetcher *fetcher_open(struct event_base *base)
{
    static const struct xfer_limits limits = {.connections = 256, .host_connections = 64};
    struct fetcher *f = NEW(struct fetcher);

    f->base = base;
    f->xfers = xfer_loop_open(base, &limits);
    f->seed = clock_now_ns();
    list_init(&f->lanes);
    return f;
}

static struct slice copy(struct arena *a, struct slice s)
{
    return s.p != NULL ? arena_copy(a, s) : SLICE_NONE;
}

struct fetch *fetch_start(struct fetcher *f, const struct fetch_want *w,
                          const struct fetch_events *ev, void *arg)
{
    struct fetch *x = NEW(struct fetch);

    CHECK(w->end != LENGTH_UNKNOWN ? w->first < w->end : w->first == 0);
    x->magic = FETCH_MAGIC;
    x->fetcher = f;
    x->lane = lane_find(&f->lanes, f->base, w->origin);
    x->origin = origin_hold(w->origin);
    x->seat.go = on_turn;
    x->ev = *ev;
    x->arg = arg;
    x->want = *w;
    x->want.url = copy(&x->arena, w->url);
    x->want.via = copy(&x->arena, w->via);
    x->want.if_range = copy(&x->arena, w->if_range);
    x->want.if_match = copy(&x->arena, w->if_match);
    x->want.if_none_match = copy(&x->arena, w->if_none_match);
    x->want.if_modified_since = copy(&x->arena, w->if_modified_since);
    x->want.accept = copy(&x->arena, w->accept);
    x->want.body = copy(&x->arena, w->body);
    x->want.body_type = copy(&x->arena, w->body_type);
    x->want.authorization = copy(&x->arena, w->authorization);
    x->want.token_scope = copy(&x->arena, w->token_scope);
    x->url = BUF_INIT(16384);
    x->via = BUF_INIT(16384);
    buf_adds(&x->url, w->url);
    x->timer = evtimer_new(f->base, on_timer, x);
    CHECK(x->timer != NULL);
    enqueue(x);
    return x;
}

void fetch_resume(struct fetch *x)
{
    CHECK(x->magic == FETCH_MAGIC);
    if (x->held_by_user) {
        x->held_by_user = false;
        if (!x->held_by_rate && x->xfer != NULL) {
            xfer_resume(x->xfer);
        }
    }
}

void fetch_cancel(struct fetch **xp)
{
    struct fetch *x = *xp;

    *xp = NULL;
    if (x == NULL) {
        return;
    }
    CHECK(x->magic == FETCH_MAGIC);
    if (x->in_event) {
        x->dead = true;
    } else {
        fetch_free(x);
    }
}

/* All fetches have ended or been cancelled. */
void fetcher_close(struct fetcher **fp)
{
    struct fetcher *f = *fp;

    *fp = NULL;
    if (f == NULL) {
        return;
    }
    lanes_close(&f->lanes);
    xfer_loop_close(&f->xfers);
    free(f);
}

struct slice fetch_field(const struct fetch_head *h, const char *name)
{
    for (size_t i = 0; i < h->nfields; i++) {
        if (slice_eqs(h->fields[i].name, name)) {
            return h->fields[i].value;
        }
    }
    return SLICE_NONE;
}

bool fetch_is_html(const struct fetch_head *h)
{
    struct slice type = fetch_field(h, "content-type");

    return slice_ieq(slice_trim(slice_cut(&type, ';')), SLICE("text/html"));
}

bool fetch_digest(const struct fetch_head *h, struct digest *out)
{
    struct slice field = fetch_field(h, "repr-digest");

    if (field.p == NULL) {
        field = fetch_field(h, "digest");
    }
    if (field.p != NULL) {
        return digest_from_field(field, out);
    }
    field = fetch_field(h, "docker-content-digest");
    if (field.p != NULL) {
        return slice_starts(field, SLICE("sha256:")) && digest_parse(slice_from(field, 7), out);
    }
    field = fetch_field(h, "x-amz-checksum-sha256");
    return h->status == 200 && field.p != NULL && /* of a part it may be the part's */
           s3_checksum(field, fetch_field(h, "x-amz-checksum-type"), out);
}
