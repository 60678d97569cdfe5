#include "server/fetch/request.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/xfer/xfer.h"
#include "server/fetch/alternates.h"
#include "server/fetch/bearer.h"
#include "server/fetch/content_range.h"
#include "server/fetch/origin_queue.h"
#include "server/fetch/origin_priv.h"
#include "server/fetch/rest.h"
#include "server/fetch/s3.h"

enum { ORIGIN_REQUEST_MAGIC = 0x66657463 };

struct origin_client {
    struct event_base *base;
    struct xfer_loop *xfers;
    struct list origin_queues;
    enum origin_client_use use;
    uint64_t seed;
};

enum origin_request_hold { HELD_BY_USER = 1, HELD_BY_RATE = 2 };

struct origin_request {
    uint32_t magic;
    struct origin_client *origin_client;
    struct origin_queue *origin_queue;
    struct origin_queue_slot slot;
    struct fair_clients clients; /* for whom; the want's first */
    struct origin *origin;       /* held */
    struct arena arena;
    struct origin_request_params want;
    struct origin_request_events ev;
    void *arg;
    void (*wanted)(void *arg); /* while it rests */
    struct xfer *xfer;
    struct event
        *timer;     /* a retry, or an error that must not be reported in origin_request_start() */
    struct buf url; /* of this hop */
    struct buf via; /* of the hop before */
    bool via_set;
    bool home; /* this hop's host is the origin's own */
    enum {
        FOR_CALLER,
        FOR_NEXT_HOP,  /* it leads elsewhere: `url`, or the same with a token */
        FOR_RETRY,     /* after wait_ms */
        FOR_ALTERNATE, /* at another URL of the origin */
    } answer;          /* this one is; its body is swallowed, but for the caller's */
    bool head_given;
    bool content_named; /* the origin has said that these are the bytes of want.content */
    int status;         /* of that head */
    unsigned held;      /* no bytes are taken: a set of enum origin_request_hold */
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
    uint64_t began_ms;        /* its first try went out; 0: none has */
    unsigned places;          /* at how many URLs of the origin the file is */
    unsigned alternate;       /* the one that is asked, or ALTERNATE_NONE: none is chosen */
    uint32_t tried;           /* a bit for each that was asked */
    uint64_t asked_ms;        /* since when that one is */
    enum {
        WORD_HEARD,   /* or the last try was not at the origin's own host */
        WORD_AWAITED, /* it is out to that host */
        WORD_MISSED,  /* it ended without any */
    } word;
};

/* --- a no of a bucket
 * -------------------------------------------------------------------------------------------------
 *
 * Its reason stands in the body: the head is kept until that has come.
 */

struct refusal {
    struct xfer_head head; /* without a body */
    struct s3_no no;       /* once it is judged */
    struct buf body;
    struct arena arena;
};

enum { REFUSAL_FIELDS = 64, REFUSAL_BYTES = 16 << 10 };

static struct refusal *refusal_new(const struct xfer_head *h)
{
    struct refusal *r = NEW(struct refusal);
    size_t n = h->nfields < REFUSAL_FIELDS ? h->nfields : REFUSAL_FIELDS;
    struct xfer_field *field = arena_alloc(&r->arena, (n + 1) * sizeof *field);

    for (size_t i = 0; i < n; i++) {
        field[i].name = arena_copy(&r->arena, h->fields[i].name);
        field[i].value = arena_copy(&r->arena, h->fields[i].value);
    }
    r->head = *h;
    r->head.fields = field;
    r->head.nfields = n;
    r->head.content_length = 0;
    r->head.framed = true;
    r->body = BUF_INIT(REFUSAL_BYTES);
    return r;
}

/* What is too long goes unread. */
static void refusal_add(struct refusal *r, struct slice bytes)
{
    size_t room = REFUSAL_BYTES - r->body.n;

    buf_adds(&r->body, slice_first(bytes, bytes.n < room ? bytes.n : room));
}

/* As s3_no_judge(); and r->no is there. */
static int refusal_judge(struct refusal *r, const struct s3 *b, struct err *e)
{
    struct slice region = xfer_head_field(&r->head, "x-amz-bucket-region");

    s3_no_read(buf_slice(&r->body), region, &r->no);
    return s3_no_judge(b, r->head.status, &r->no, e);
}

static void refusal_free(struct refusal **rp)
{
    struct refusal *r = *rp;

    *rp = NULL;
    if (r == NULL) {
        return;
    }
    buf_free(&r->body);
    arena_fini(&r->arena);
    free(r);
}

/* --- what goes out at each hop ---
 *
 * One hop is asked: whether its host may be, what it is shown of credentials, and the fields of the
 * request.
 */

static bool is_asked_at_home(const struct origin_request *x)
{
    return x->places > 1 && x->home && x->alternate != ALTERNATE_NONE;
}

/* Begins with the next URL of the origin. False: each was asked. */
static bool choose_alternate(struct origin_request *x)
{
    const struct origin *o = x->origin;
    unsigned next = alternates_choose(o->alternates, x->tried,
                                      (uint64_t)o->connect_ms + o->stall_ms, clock_now_ms());

    if (next == ALTERNATE_NONE) {
        return false;
    }
    x->alternate = next;
    x->tried |= 1U << next;
    x->asked_ms = clock_now_ms();
    CHECK(alternates_move(o->alternates, next, x->want.url, &x->url));
    x->hops = 0;
    x->via_set = x->challenged = x->content_named = false;
    return true;
}

/* Another round is before it. */
static void forget_alternates(struct origin_request *x)
{
    x->tried = 0;
    x->alternate = ALTERNATE_NONE;
}

static bool has_untried(const struct origin_request *x)
{
    return x->tried + 1 != 1U << x->places;
}

static void alternate_failed(struct origin_request *x, uint64_t rest_ms, const char *why)
{
    struct alternates *a = x->origin->alternates;

    if (is_asked_at_home(x) &&
        alternates_failed(a, x->alternate, x->asked_ms, rest_ms, clock_now_ms())) {
        log_warn("origin.rests", "repo=%s url=%s why=\"%s\"", x->origin->repo,
                 alternates_url(a, x->alternate), why);
    }
}

static void alternate_worked(struct origin_request *x)
{
    struct alternates *a = x->origin->alternates;

    if (is_asked_at_home(x) && alternates_worked(a, x->alternate, x->asked_ms)) {
        log_info("origin.back", "repo=%s url=%s", x->origin->repo, alternates_url(a, x->alternate));
    }
}

/* An answer for which another URL is asked, if there is one. */
static bool is_left_for_alternate(const struct origin_request *x, int status)
{
    return is_asked_at_home(x) && !x->want.once && has_untried(x) &&
           (status == 500 || (status >= 502 && status <= 504));
}

/* As the caller names it, below the first URL. */
static struct slice plain_request_url(struct origin_request *x)
{
    struct buf plain = BUF_INIT(16384);
    struct slice url = buf_slice(&x->url);

    if (x->places > 1 && alternates_move(x->origin->alternates, 0, url, &plain)) {
        url = arena_copy(&x->arena, buf_slice(&plain));
    }
    buf_free(&plain);
    return url;
}

enum {
    STALL_BYTES_PER_S = 64, /* slower than this for stall_ms is a stall */
    LINES_MAX = 9 + ORIGIN_REQUEST_FIELDS + ORIGIN_LINES,
};

/* Does this hop go to where tokens are good? A caller's own credential stands for itself. */
static bool origin_request_shows_tokens(const struct origin_request *x)
{
    return x->home && x->origin->tokens && x->want.authorization.p == NULL;
}

static void add_origin_line(struct origin_request *x, struct slice *lines, size_t *n,
                            const char *name, struct slice value)
{
    if (value.p != NULL) {
        lines[(*n)++] = arena_fmt(&x->arena, "%s: " SLICE_FMT, name, SLICE_ARG(value));
    }
}

static void add_origin_fields(struct origin_request *x, struct slice *lines, size_t *n)
{
    for (size_t i = 0; i < x->want.nfields; i++) {
        const struct http_field *f = &x->want.fields[i];
        if (x->home || slice_starts(f->name, SLICE("accept"))) {
            lines[(*n)++] = arena_fmt(&x->arena, SLICE_FMT ": " SLICE_FMT, SLICE_ARG(f->name),
                                      SLICE_ARG(f->value));
        }
    }
}

/* 1: one is on its way, x->token.go goes on. Who waits has no slot: a token server that hangs for
 * some keeps nobody whose token is good from the origin. */
static int add_bearer_token(struct origin_request *x, struct slice *lines, size_t *n)
{
    struct slice line;

    x->token_number = 0;
    if (!origin_request_shows_tokens(x)) {
        return 0;
    }
    switch (bearer_get(origin_queue_bearers(x->origin_queue, x->origin_client->xfers),
                       x->want.token_scope, clock_now_ms(), &x->arena, &line, &x->token_number,
                       &x->token)) {
    case BEARER_NONE:
        return 0;
    case BEARER_READY:
        lines[(*n)++] = line;
        return 0;
    case BEARER_WAIT:
        origin_queue_leave(x->origin_queue, &x->slot);
        return 1;
    }
    return 0;
}

/* A credential is for the origin's own scheme, host and port. */
static int add_credential(struct origin_request *x, struct slice *lines, size_t *n)
{
    size_t before = *n;

    if (add_bearer_token(x, lines, n) != 0) {
        return 1;
    }
    if (*n != before) {
        return 0;
    }
    if (x->want.authorization.p != NULL && x->origin->s3 == NULL) {
        add_origin_line(x, lines, n, "Authorization", x->want.authorization);
        return 0;
    }
    return origin_credential(x->origin, x->want.head, clock_unix_s(), &x->url, &x->arena, lines, n,
                             &x->why);
}

static void note_asked(struct origin_request *x)
{
    uint64_t now = clock_now_ms();

    x->began_ms = x->began_ms != 0 ? x->began_ms : now;
    x->word = x->home ? WORD_AWAITED : WORD_HEARD;
    if (x->home) {
        silence_asked(origin_queue_silence(x->origin_queue), x->origin->patience_ms, now);
    }
}

/* Asks the hop that x->url names, or waits for a token first: x->token.go goes on then. An error:
 * it may not be asked, *x has why. */
static int origin_request_ask(struct origin_request *x, const struct xfer_events *events)
{
    const struct origin *o = x->origin;
    struct slice lines[LINES_MAX];
    struct xfer_params w = {
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
    };
    struct url u;
    int rc = 0;

    if (x->places > 1 && x->alternate == ALTERNATE_NONE) {
        CHECK(choose_alternate(x));
        w.url = buf_slice(&x->url);
    }
    rc = x->url.rc != 0
             ? err_set(&x->why, E_TOOBIG, "the URL has more than %zu bytes", x->url.max)
             : origin_admits(o, w.url, x->via_set ? buf_slice(&x->via) : x->want.via, &x->why);

    rc = rc != 0 ? rc : url_split(w.url, &u, &x->why);
    if (rc != 0) {
        return rc;
    }
    x->home = origin_is_home(o, &u);
    if (x->want.stays_home && !x->home) {
        return err_set(&x->why, E_PROTOCOL,
                       "the origin redirects an access check, which must stay on its own host, "
                       "to " SLICE_FMT,
                       SLICE_ARG(u.host));
    }
    origin_set_way(o, origin_trusts_address(o, &u), &w);
    rc = x->home ? add_credential(x, lines, &w.nfields) : 0;
    if (rc != 0) {
        return rc > 0 ? 0 : rc; /* x->token.go asks again */
    }
    w.url = buf_slice(&x->url); /* signing has put it into another form */
    add_origin_line(x, lines, &w.nfields, "Accept", x->want.accept);
    add_origin_fields(x, lines, &w.nfields);
    add_origin_line(x, lines, &w.nfields, "Content-Type", x->want.body_type);
    add_origin_line(x, lines, &w.nfields, "If-Range", x->want.if_range);
    add_origin_line(x, lines, &w.nfields, "If-Match", x->want.if_match);
    add_origin_line(x, lines, &w.nfields, "If-None-Match", x->want.if_none_match);
    add_origin_line(x, lines, &w.nfields, "If-Modified-Since", x->want.if_modified_since);
    x->got_bytes = 0;
    x->due_bytes = LENGTH_UNKNOWN;
    atomic_fetch_add_explicit(&x->origin->count->requests, 1, memory_order_relaxed);
    note_asked(x);
    x->xfer = xfer_start(x->origin_client->xfers, &w, events, x);
    return 0;
}

enum {
    HOPS_MAX = 5,
    TRIES = 3,             /* of a request that got no head */
    BACKOFF_MS = 250,      /* doubled each time, with jitter */
    PATIENCE_MS = 10000,   /* a Retry-After up to this is waited for; clients give up soon after */
    SWALLOW_BYTES = 65536, /* of a redirect's or a refusal's body, so that the connection stays */
    FIELDS_MAX = 256,
    SLOWLY_MS = 500, /* a bucket's 503 says "slow down" and not for how long; doubled each time */
};

static void begin_origin_request(struct origin_request *x);

/* --- one fetch's life ------------------------------------------------------------------------- */

static void timer_in(struct event *t, uint64_t ms)
{
    struct timeval tv = clock_timeval(ms);
    evtimer_add(t, &tv);
}

static void note_origin_answer(struct origin_request *x)
{
    if (x->word == WORD_AWAITED) {
        silence_answered(origin_queue_silence(x->origin_queue), clock_now_ms());
        x->word = WORD_HEARD;
    } else if (x->home) {
        silence_heard(origin_queue_silence(x->origin_queue), clock_now_ms());
    }
}

/* The try is over. */
static void note_no_word(struct origin_request *x)
{
    if (x->word == WORD_AWAITED) {
        silence_left(origin_queue_silence(x->origin_queue), x->origin->patience_ms, clock_now_ms());
        x->word = WORD_MISSED;
    }
}

static void origin_request_free(struct origin_request *x)
{
    struct origin_queue *l = x->origin_queue;

    note_no_word(x);
    xfer_cancel(&x->xfer);
    refusal_free(&x->refusal);
    list_remove_if(&x->token.node);
    origin_queue_leave(l, &x->slot);
    origin_free(&x->origin); /* before the origin queue looks whether it is the last to hold it */
    origin_queue_drop_if_idle(l);
    event_free(x->timer);
    buf_free(&x->url);
    buf_free(&x->via);
    arena_fini(&x->arena);
    x->magic = 0;
    free(x);
}

/* A cancelled one says nothing of the origin. */
static void note_health(const struct origin_request *x, int rc, const struct err *why)
{
    char text[32];

    if (rc == 0 && x->status >= 500) {
        snprintf(text, sizeof text, "it answered %d", x->status);
        origin_failed(x->origin, false, text);
    } else if (rc == 0) {
        origin_answered(x->origin, true);
    } else if (rc != E_CANCELLED) {
        origin_failed(x->origin, x->head_given, why != NULL ? why->text : err_plain(rc));
    }
}

static void finish_origin_request(struct origin_request *x, int rc, const struct err *why)
{
    if (rc != 0 && rc != E_CANCELLED) {
        atomic_fetch_add_explicit(&x->origin->count->errors, 1, memory_order_relaxed);
    }
    if (x->word == WORD_MISSED && (rc == E_NETWORK || rc == E_TIMEOUT)) {
        silence_failed(origin_queue_silence(x->origin_queue), x->began_ms, clock_now_ms(), why);
    }
    note_health(x, rc, why);
    if (rc == 0 && x->status < 500) {
        alternate_worked(x);
    }
    origin_queue_leave(x->origin_queue,
                       &x->slot); /* first: the caller may start its next one now */
    x->in_event = true;
    x->ev.on_done(x->arg, rc, why);
    origin_request_free(x);
}

/* An error found outside an xfer's event is reported from the loop. */
static void fail_soon(struct origin_request *x, int rc)
{
    x->rc = rc;
    timer_in(x->timer, 0);
}

static void enqueue(struct origin_request *x)
{
    uint64_t rest_ms = origin_queue_resting_ms(x->origin_queue);

    if (rest_ms > PATIENCE_MS) {
        fail_soon(x, err_set(&x->why, E_BUSY,
                             "the origin asked not to be contacted for %" PRIu64 " s (Retry-After)",
                             (rest_ms + 999) / 1000));
        return;
    }
    origin_queue_enter(x->origin_queue, &x->slot, x->want.client);
    for (unsigned i = 1; i < x->clients.count; i++) {
        origin_queue_move(x->origin_queue, &x->slot, x->clients.client[i]);
    }
}

static void on_origin_request_timer(evutil_socket_t fd, short what, void *arg)
{
    struct origin_request *x = arg;

    (void)fd;
    (void)what;
    CHECK(x->magic == ORIGIN_REQUEST_MAGIC);
    if (x->rc != 0) {
        finish_origin_request(x, x->rc, &x->why);
    } else if (x->xfer == NULL) {
        enqueue(x);
    } else {
        x->held &= ~(unsigned)HELD_BY_RATE;
        if (x->held == 0) {
            xfer_resume(x->xfer);
        }
    }
}

static void retry_in(struct origin_request *x, uint64_t ms)
{
    x->tries++;
    origin_queue_leave(x->origin_queue, &x->slot);
    timer_in(x->timer, ms);
}

/* --- the answer's head ------------------------------------------------------------------------ */

/* One that leads nowhere is an answer like others. */
static bool is_redirect(const struct xfer_head *h)
{
    int s = h->status;

    return (s == 301 || s == 302 || s == 303 || s == 307 || s == 308) &&
           xfer_head_field(h, "location").p != NULL;
}

static int take_redirect(struct origin_request *x, const struct xfer_head *h)
{
    struct slice to = xfer_head_field(h, "location");
    struct buf next = BUF_INIT(16384);
    int rc;

    if (x->want.body.n != 0) {
        return err_set(&x->why, E_PROTOCOL,
                       "the origin redirects a request with a body, which is not followed");
    }
    if (++x->hops > HOPS_MAX) {
        return err_set(&x->why, E_PROTOCOL, "the origin sent more than %d redirects", HOPS_MAX);
    }
    rc = url_resolve(buf_slice(&x->url), to, &next, &x->why);
    if (rc == 0) {
        buf_clear(&x->via);
        buf_adds(&x->via, buf_slice(&x->url));
        buf_clear(&x->url);
        buf_adds(&x->url, buf_slice(&next));
        x->via_set = true;
        x->answer = FOR_NEXT_HOP;
    }
    buf_free(&next);
    return rc;
}

/* A 206 must be what was asked: [first, min(end, total)). */
static int check_part(struct origin_request *x, const struct xfer_head *h, struct origin_head *out)
{
    struct content_range r;

    if (x->want.end == LENGTH_UNKNOWN) {
        return err_set(&x->why, E_PROTOCOL,
                       "the origin sent a partial response (206) to a request for the whole file");
    }
    if (!content_range_parse(xfer_head_field(h, "content-range"), &r)) {
        return err_set(&x->why, E_PROTOCOL,
                       "the origin sent a partial response without a valid Content-Range");
    }
    if (r.first != x->want.first || r.end > x->want.end ||
        (r.end < x->want.end && r.end != r.total)) {
        return err_set(&x->why, E_PROTOCOL,
                       "mirrord asked for bytes %" PRIu64 "-%" PRIu64
                       ", but the origin sent %" PRIu64 "-%" PRIu64,
                       x->want.first, x->want.end - 1, r.first, r.end - 1);
    }
    if (h->content_length != XFER_UNKNOWN && h->content_length != r.end - r.first) {
        return err_set(&x->why, E_PROTOCOL,
                       "the origin's Content-Length and Content-Range disagree");
    }
    x->due_bytes = r.end - r.first;
    out->first = r.first;
    out->total = r.total;
    return 0;
}

static int give_head(struct origin_request *x, const struct xfer_head *h, struct slice why)
{
    struct http_field fields[FIELDS_MAX];
    struct origin_head out = {
        .status = h->status,
        .content_length = h->content_length == XFER_UNKNOWN ? LENGTH_UNKNOWN : h->content_length,
        .total = LENGTH_UNKNOWN,
        .framed = h->framed,
        .ranges = h->status == 206 ||
                  slice_ieq(slice_trim(xfer_head_field(h, "accept-ranges")), SLICE("bytes")),
        .fields = fields,
        .why = why,
    };
    int rc = h->status == 206 ? check_part(x, h, &out) : 0;

    out.url = plain_request_url(x);
    if (rc != 0) {
        return rc;
    }
    if (h->status == 304 && x->want.if_none_match.p == NULL &&
        x->want.if_modified_since.p == NULL) {
        return err_set(&x->why, E_PROTOCOL,
                       "the origin sent 304 to a request that was not conditional");
    }
    for (size_t i = 0; i < h->nfields && i < FIELDS_MAX; i++) {
        fields[out.nfields++] = (struct http_field){h->fields[i].name, h->fields[i].value};
    }
    x->head_given = true;
    x->status = h->status;
    if (h->status < 500) {
        origin_answered(x->origin, false);
    }
    return x->ev.on_head(x->arg, &out) != 0 ? E_CANCELLED : 0;
}

/* Its refusals have their reason in the body. */
static bool at_bucket(const struct origin_request *x)
{
    return x->origin->s3 != NULL && x->home;
}

/* Does this answer belong to other bytes than those that are wanted? Only the origin's own host
 * names them. */
static bool is_of_other_content(struct origin_request *x, const struct xfer_head *h)
{
    struct slice name = xfer_head_field(h, ORIGIN_CONTENT_FIELD);
    bool leads = is_redirect(h);

    if (x->want.content.p == NULL || (!leads && h->status != 200 && h->status != 206)) {
        return false;
    }
    if (x->home && name.p != NULL) {
        x->content_named = slice_ieq(slice_trim(name), x->want.content);
        return !x->content_named;
    }
    return !leads && !x->content_named;
}

static int on_xfer_head(void *arg, const struct xfer_head *h)
{
    struct origin_request *x = arg;
    uint64_t rest_ms = x->want.once ? 0 : rest_asked_ms(h, clock_unix_s());
    struct xfer_head other;
    char answered[32];
    int rc;

    CHECK(x->magic == ORIGIN_REQUEST_MAGIC);
    note_origin_answer(x);
    if (is_left_for_alternate(x, h->status)) {
        snprintf(answered, sizeof answered, "it answered %d", h->status);
        alternate_failed(x, rest_ms, answered);
        x->answer = FOR_ALTERNATE;
        return 0;
    }
    if (at_bucket(x) && h->status == 503 && rest_ms == 0) {
        rest_ms = (uint64_t)SLOWLY_MS << x->tries;
    }
    if (rest_ms > 0) {
        origin_queue_rest(x->origin_queue, rest_ms);
    }
    if (rest_is_asked(h->status) && rest_ms > 0 && rest_ms <= PATIENCE_MS && x->tries + 1 < TRIES) {
        x->answer = FOR_RETRY;
        x->wait_ms = rest_ms;
        return 0;
    }
    if (at_bucket(x) && s3_is_no(h)) {
        x->refusal = refusal_new(h);
        return 0;
    }
    if (is_of_other_content(x, h)) {
        other = *h;
        other.status = 412;
        other.nfields = 0;
        h = &other;
    }
    if (is_redirect(h)) {
        return take_redirect(x, h);
    }
    if (h->status == 401 && origin_request_shows_tokens(x) && !x->challenged &&
        bearer_refused(origin_queue_bearers(x->origin_queue, x->origin_client->xfers),
                       x->want.token_scope, x->token_number, h, &x->why)) {
        x->challenged = true;
        x->answer = FOR_NEXT_HOP;
        return 0;
    }
    if (x->why.code != 0) { /* its token server may not be asked */
        return x->why.code;
    }
    x->in_event = true;
    rc = give_head(x, h, SLICE_NONE);
    x->in_event = false;
    if (x->dead) {
        origin_request_free(x);
        return E_CANCELLED;
    }
    return rc;
}

/* --- its body and its end --------------------------------------------------------------------- */

static int on_xfer_body(void *arg, struct slice bytes)
{
    struct origin_request *x = arg;
    uint64_t pause_ms;
    int rc;

    CHECK(x->magic == ORIGIN_REQUEST_MAGIC);
    note_origin_answer(x);
    atomic_fetch_add_explicit(&x->origin->count->bytes, bytes.n, memory_order_relaxed);
    if (x->refusal != NULL) {
        refusal_add(x->refusal, bytes);
    }
    if (x->answer != FOR_CALLER || x->refusal != NULL) {
        x->swallowed_bytes += bytes.n;
        return x->swallowed_bytes > SWALLOW_BYTES ? E_TOOBIG : 0;
    }
    x->got_bytes += bytes.n;
    if (x->due_bytes != LENGTH_UNKNOWN && x->got_bytes > x->due_bytes) {
        return err_set(&x->why, E_PROTOCOL, "the origin sent more bytes than it announced");
    }
    pause_ms = origin_queue_spend(x->origin_queue, bytes.n);
    if (pause_ms > 0) {
        x->held |= HELD_BY_RATE;
        timer_in(x->timer, pause_ms);
    }
    x->in_event = true;
    rc = x->ev.on_body(x->arg, bytes);
    x->in_event = false;
    if (x->dead) {
        origin_request_free(x);
        return E_CANCELLED;
    }
    if (rc == ORIGIN_REQUEST_PAUSE) {
        x->held |= HELD_BY_USER;
    } else if (rc != 0) {
        return E_CANCELLED;
    }
    return x->held != 0 ? XFER_PAUSE : 0;
}

/* The reason has come, or broke off: the no is the caller's, or the end of it all. */
static void give_refusal(struct origin_request *x)
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
            origin_request_free(x);
            return;
        }
    }
    finish_origin_request(x, rc, &x->why);
}

static void on_xfer_done(void *arg, int rc, const struct err *why, uint64_t body_bytes)
{
    struct origin_request *x = arg;

    (void)body_bytes;
    CHECK(x->magic == ORIGIN_REQUEST_MAGIC);
    x->xfer = NULL;
    note_no_word(x);
    evtimer_del(x->timer);
    if (x->refusal != NULL) {
        give_refusal(x);
        return;
    }
    if (x->answer != FOR_CALLER) { /* its head has said all: a body cut short changes nothing */
        bool follow =
            x->answer == FOR_NEXT_HOP || (x->answer == FOR_ALTERNATE && choose_alternate(x));
        x->answer = FOR_CALLER;
        x->swallowed_bytes = 0;
        if (follow) {
            begin_origin_request(x); /* keeps its slot: the origin queue counts chains, not hops */
        } else {
            retry_in(x, x->wait_ms);
        }
        return;
    }
    if (x->why.code == 0 && (rc == E_NETWORK || rc == E_TIMEOUT || rc == E_PROTOCOL)) {
        alternate_failed(x, 0, why->text);
        if (is_asked_at_home(x) && !x->head_given && !x->want.once && choose_alternate(x)) {
            begin_origin_request(x); /* it keeps its slot, too */
            return;
        }
        forget_alternates(x);
    }
    if (x->why.code != 0) { /* ours says more than what xfer made of it */
        finish_origin_request(x, x->why.code, &x->why);
    } else if (rc == 0 && x->due_bytes != LENGTH_UNKNOWN && x->got_bytes < x->due_bytes) {
        finish_origin_request(x,
                              err_set(&x->why, E_NETWORK,
                                      "the transfer ended after %" PRIu64 " of %" PRIu64 " bytes",
                                      x->got_bytes, x->due_bytes),
                              &x->why);
    } else if (rc == E_NETWORK && !x->head_given && !x->want.once && x->tries + 1 < TRIES) {
        uint64_t ms = (uint64_t)BACKOFF_MS << x->tries;
        x->origin_client->seed =
            x->origin_client->seed * 6364136223846793005u + 1442695040888963407u;
        retry_in(x, ms / 2 + (x->origin_client->seed >> 33) % ms);
    } else {
        finish_origin_request(x, rc, why);
    }
}

/* --- its turns -------------------------------------------------------------------------------- */

static void begin_origin_request(struct origin_request *x)
{
    static const struct xfer_events events = {on_xfer_head, on_xfer_body, on_xfer_done};
    int rc = origin_request_ask(x, &events);

    if (rc != 0) {
        fail_soon(x, rc);
    }
}

static void on_turn(struct origin_queue_slot *s)
{
    begin_origin_request(CONTAINER_OF(s, struct origin_request, slot));
}

static void on_wanted(struct origin_queue_slot *s)
{
    struct origin_request *x = CONTAINER_OF(s, struct origin_request, slot);

    CHECK(x->magic == ORIGIN_REQUEST_MAGIC);
    x->wanted(x->arg); /* it may be gone now */
}

/* There is a token now; or the token server's no, which is the origin's. */
static void on_bearer_token(struct bearer_wait *w, int rc, const struct err *why)
{
    struct origin_request *x = CONTAINER_OF(w, struct origin_request, token);
    struct xfer_head no = {.status = 401, .framed = true};

    CHECK(x->magic == ORIGIN_REQUEST_MAGIC);
    if (rc == 0) {
        enqueue(x);
        return;
    }
    if (rc == E_DENIED) {
        x->in_event = true;
        rc = give_head(x, &no, slice_str(why->text));
        x->in_event = false;
        if (x->dead) {
            origin_request_free(x);
            return;
        }
    }
    finish_origin_request(x, rc, why);
}

/* --- the outside ------------------------------------------------------------------------------ */

struct origin_client *origin_client_open(struct event_base *base, enum origin_client_use use)
{
    static const struct xfer_limits limits = {.connections = 256, .host_connections = 64};
    struct origin_client *f = NEW(struct origin_client);

    f->base = base;
    f->use = use;
    f->xfers = xfer_loop_open(base, &limits);
    f->seed = clock_now_ns();
    list_init(&f->origin_queues);
    return f;
}

static void copy_fields(struct origin_request *x, const struct origin_request_params *w)
{
    struct http_field *to = arena_alloc(&x->arena, (w->nfields + 1) * sizeof *to);

    CHECK(w->nfields <= ORIGIN_REQUEST_FIELDS);
    for (size_t i = 0; i < w->nfields; i++) {
        to[i].name = arena_copy(&x->arena, w->fields[i].name);
        to[i].value = arena_copy(&x->arena, w->fields[i].value);
    }
    x->want.fields = to;
}

struct origin_request *origin_request_start(struct origin_client *f,
                                            const struct origin_request_params *w,
                                            const struct origin_request_events *ev, void *arg)
{
    struct origin_request *x = NEW(struct origin_request);

    CHECK(w->end != LENGTH_UNKNOWN ? w->first < w->end : w->first == 0);
    x->magic = ORIGIN_REQUEST_MAGIC;
    x->origin_client = f;
    x->origin_queue =
        origin_queue_find(&f->origin_queues, f->base, w->origin, f->use == ORIGIN_CLIENT_ALONE);
    x->origin = origin_hold(w->origin);
    x->slot.go = on_turn;
    x->slot.wanted = on_wanted;
    fair_clients_add(&x->clients, w->client);
    x->token.go = on_bearer_token;
    x->ev = *ev;
    x->arg = arg;
    x->want = *w;
    x->want.url = arena_copy_opt(&x->arena, w->url);
    x->want.via = arena_copy_opt(&x->arena, w->via);
    x->want.if_range = arena_copy_opt(&x->arena, w->if_range);
    x->want.if_match = arena_copy_opt(&x->arena, w->if_match);
    x->want.if_none_match = arena_copy_opt(&x->arena, w->if_none_match);
    x->want.if_modified_since = arena_copy_opt(&x->arena, w->if_modified_since);
    x->want.accept = arena_copy_opt(&x->arena, w->accept);
    copy_fields(x, w);
    x->want.body = arena_copy_opt(&x->arena, w->body);
    x->want.body_type = arena_copy_opt(&x->arena, w->body_type);
    x->want.authorization = arena_copy_opt(&x->arena, w->authorization);
    x->want.token_scope = arena_copy_opt(&x->arena, w->token_scope);
    x->want.content = arena_copy_opt(&x->arena, w->content);
    x->url = BUF_INIT(16384);
    x->via = BUF_INIT(16384);
    x->places = alternates_count(w->origin->alternates);
    x->alternate = ALTERNATE_NONE;
    if (x->places == 1 || !alternates_move(w->origin->alternates, 0, w->url, &x->url)) {
        x->places = 1;
        buf_adds(&x->url, w->url);
    }
    x->timer = evtimer_new(f->base, on_origin_request_timer, x);
    CHECK(x->timer != NULL);
    enqueue(x);
    return x;
}

/* What it leads to elsewhere says nothing of it. */
static struct origin_queue *origin_queue_of_home(struct origin_client *f, const struct origin *o,
                                                 struct slice url)
{
    struct url u;

    return url_split(url, &u, NULL) == 0 && origin_is_home(o, &u)
               ? origin_queue_find(&f->origin_queues, f->base, o, f->use == ORIGIN_CLIENT_ALONE)
               : NULL;
}

enum origin_word origin_client_word(struct origin_client *f, const struct origin *o,
                                    struct slice url, struct err *why)
{
    struct origin_queue *l = origin_queue_of_home(f, o, url);

    return l != NULL
               ? silence_word(origin_queue_silence(l), origin_patience_ms(o), clock_now_ms(), why)
               : ORIGIN_HEARD;
}

bool origin_client_probes(struct origin_client *f, const struct origin *o, struct slice url)
{
    struct origin_queue *l = origin_queue_of_home(f, o, url);

    return l != NULL && silence_probe(origin_queue_silence(l), clock_now_ms());
}

void origin_request_share(struct origin_request *x, uint64_t client)
{
    CHECK(x->magic == ORIGIN_REQUEST_MAGIC);
    if (fair_clients_add(&x->clients, client)) {
        origin_queue_move(x->origin_queue, &x->slot, client);
    }
}

bool origin_request_has_turn(const struct origin_request *x)
{
    return x->slot.taken;
}

void origin_request_rest(struct origin_request *x, void (*wanted)(void *arg))
{
    CHECK(x->magic == ORIGIN_REQUEST_MAGIC);
    x->wanted = wanted;
    origin_queue_lend(x->origin_queue, &x->slot, wanted != NULL);
}

void origin_request_resume(struct origin_request *x)
{
    CHECK(x->magic == ORIGIN_REQUEST_MAGIC);
    if ((x->held & HELD_BY_USER) != 0) {
        x->held &= ~(unsigned)HELD_BY_USER;
        if (x->held == 0 && x->xfer != NULL) {
            xfer_resume(x->xfer);
        }
    }
}

void origin_request_cancel(struct origin_request **xp)
{
    struct origin_request *x = *xp;

    *xp = NULL;
    if (x == NULL) {
        return;
    }
    CHECK(x->magic == ORIGIN_REQUEST_MAGIC);
    if (x->in_event) {
        x->dead = true;
    } else {
        origin_request_free(x);
    }
}

/* All fetches have ended or been cancelled. */
void origin_client_close(struct origin_client **fp)
{
    struct origin_client *f = *fp;

    *fp = NULL;
    if (f == NULL) {
        return;
    }
    origin_queues_close(&f->origin_queues);
    xfer_loop_close(&f->xfers);
    free(f);
}
