#include "server/request/relay.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/xfer/xfer.h"
#include "server/cluster/relay.h"
#include "server/request/refusal.h"
#include "server/request/reply.h"

enum {
    RESPONSE_BYTES = 128 << 10, /* of a response, that wait for the client */
    KEPT_BODY_BYTES = 64 << 10, /* a body up to this may go over a kept connection */
    CONNECT_MS = 3000,
    SILENCE_S = 600, /* a large object is hashed at its end */
    UNACKNOWLEDGED_MS = 60000,
    WATCH_MS = 2000,
    CONNECTIONS = 4096,
    TRIES_MAX = 4,
    AGAIN_MS = 250,
};

/* Bytes that have come and not gone yet. */
struct window {
    struct buf bytes;
    uint64_t at;        /* of its first byte in the body */
    size_t drops_bytes; /* so many used bytes at its front are removed */
};

/* The request's body:
 *
 *   NONE      UNREAD ──> READING <──> HELD
 *                           ╰─────> ENDED
 */
enum incoming {
    INCOMING_NONE,    /* there is none, or the plan has read it */
    INCOMING_UNREAD,  /* the other mirror has not accepted a connection yet */
    INCOMING_READING, /* it comes */
    INCOMING_HELD,    /* its client waits until there is room */
    INCOMING_ENDED,   /* its last byte has come */
};

struct relay_flow {
    unsigned holds; /* by the transfer, the wait, the response's body, and a callback that runs */
    struct request *request;
    struct relay *relay;
    void (*here)(struct request *c); /* answers on this mirror */
    struct member to;
    unsigned tries;
    struct xfer *transfer; /* NULL: it has ended */
    struct timer watch;
    bool waits; /* for a mirror that is away: `again` is set, and holds the flow */
    struct timer again;
    uint64_t patient_until_ms;
    /* the request's body */
    enum incoming incoming;
    struct window up;
    bool kept; /* it is short: all of it stays in the window */
    /* the response */
    bool answered;
    struct body body;
    bool sends; /* the exchange has the body */
    bool held;  /* the transfer is paused */
    bool complete;
    int rc;
    struct window down;
};

/* --- which upload --- */

/* What begins or ends an upload of objects that a commit names. */
static bool goes_by_tree(enum put_kind k)
{
    return k == PUT_UPLOAD_GRANT || k == PUT_OBJECTS_SHARE || k == PUT_APPEND_OPEN ||
           k == PUT_APPEND || k == PUT_CHANGES;
}

struct what {
    struct slice id, tree; /* n == 0: it is not about an upload with an id; about a tree's */
};

static struct what what_of(const struct request *c)
{
    const struct plan *p = &c->plan;

    if (p->kind != PLAN_PUT) {
        return (struct what){p->uploads_id, p->uploads_tree};
    }
    return (struct what){p->put.upload_id, goes_by_tree(p->put.kind) ? p->put.name : SLICE_NONE};
}

static enum relay_place place_of(const struct request *c, struct relay *r, struct member *to)
{
    struct what w = what_of(c);

    return w.id.n != 0     ? relay_of_upload(r, w.id, to)
           : w.tree.n != 0 ? relay_of_tree(r, slice_str(c->repo->name), w.tree, to)
                           : RELAY_HERE;
}

/* --- windows --- */

static uint64_t window_end(const struct window *w)
{
    return w->at + w->bytes.n;
}

static void window_drop(struct window *w, uint64_t upto)
{
    size_t n = (size_t)(upto - w->at);

    if (n == w->bytes.n) {
        buf_clear(&w->bytes);
    } else if (n >= w->drops_bytes) {
        buf_drop(&w->bytes, n);
    } else {
        return;
    }
    w->at = upto;
}

/* --- its life --- */

static void drop_flow(struct relay_flow *f)
{
    struct request *c = f->request;
    struct serve_loop *d = c->serve_loop;

    if (--f->holds != 0) {
        return;
    }
    c->relay = NULL;
    timer_stop(&f->watch);
    buf_free(&f->up.bytes);
    buf_free(&f->down.bytes);
    free(f);
    request_release(&c);
    serve_loop_flow_over(d);
}

static void cancel_transfer(struct relay_flow *f)
{
    if (f->transfer != NULL) {
        xfer_cancel(&f->transfer);
        drop_flow(f);
    }
}

static void refuse_for_now(struct request *c, const char *what)
{
    struct http_reply *r = ARENA_NEW(&c->arena, struct http_reply);

    r->status = 503;
    reply_add(r, SLICE("cache-control"), SLICE("no-store"));
    reply_add(r, SLICE("retry-after"), SLICE("1"));
    reply_failure(c, r, slice_str(what));
}

static bool start_transfer(struct request *c, struct relay_flow *f);

/* Nothing has been executed: another mirror may. */
static bool may_try_again(const struct relay_flow *f)
{
    const struct plan *p = &f->request->plan;
    bool changes = p->kind == PLAN_PUT && p->put.kind == PUT_CHANGES;

    return f->tries < TRIES_MAX &&
           (f->incoming == INCOMING_UNREAD || (f->incoming == INCOMING_NONE && !changes));
}

static void answer_here(struct relay_flow *f)
{
    struct request *c = f->request;

    f->answered = true;
    c->reader = NULL;
    f->here(c);
}

static void refuse_away(struct relay_flow *f)
{
    f->answered = true;
    refuse_for_now(f->request, "the mirror of this cluster that has the upload is away; try again");
}

static void wait_for_mirror(struct relay_flow *f)
{
    struct loop *l = f->request->serve_loop->loop;

    f->waits = true;
    f->holds++;
    timer_set(&l->timers, &f->again, l->now_ms + AGAIN_MS);
}

static bool is_patient(const struct relay_flow *f)
{
    return f->request->serve_loop->loop->now_ms < f->patient_until_ms;
}

/* Its mirror may be back. */
static void go_on(struct timer *t)
{
    struct relay_flow *f = CONTAINER_OF(t, struct relay_flow, again);
    struct request *c = f->request;

    f->waits = false;
    switch (place_of(c, f->relay, &f->to)) {
    case RELAY_THERE:
        if (start_transfer(c, f)) {
            break;
        }
        /* fall through */
    case RELAY_HERE:
        answer_here(f);
        break;
    case RELAY_AWAY:
        if (is_patient(f)) {
            wait_for_mirror(f);
        } else {
            refuse_away(f);
        }
        break;
    }
    drop_flow(f);
}

/* The transfer has failed. sent: the other mirror may have got something of the request. */
static void fail(struct relay_flow *f, bool sent, int rc, const char *why)
{
    struct request *c = f->request;
    bool has_id = what_of(c).id.n != 0;

    f->rc = rc;
    if (f->sends && f->body.wake != NULL) {
        f->body.wake(f->body.wake_arg);
    }
    if (c->x == NULL || f->answered) {
        return;
    }
    if (f->incoming <= INCOMING_UNREAD) {
        relay_failed(f->relay, f->to.node, c->serve_loop->loop->now_ms);
    }
    if (has_id && !sent && is_patient(f)) {
        wait_for_mirror(f);
        return;
    }
    relay_count(f->relay, &(struct relay_stats){.failed = 1});
    log_info("relay.failed", "repo=%s node=%s why=\"%s\"", c->repo->name, f->to.node, why);
    if (has_id && !sent) {
        refuse_away(f);
    } else if (has_id || !may_try_again(f)) {
        f->answered = true;
        refuse_for_now(c,
                       "the mirror of this cluster that has the upload did not answer; it is not "
                       "known what became of the request: try again");
    } else if (place_of(c, f->relay, &f->to) != RELAY_THERE || !start_transfer(c, f)) {
        answer_here(f);
    }
}

static void look_whether_alive(struct timer *t)
{
    struct relay_flow *f = CONTAINER_OF(t, struct relay_flow, watch);
    struct loop *l = f->request->serve_loop->loop;
    bool sent;

    if (f->transfer == NULL) {
        return;
    }
    if (relay_is_alive(f->relay, f->to.node)) {
        timer_set(&l->timers, &f->watch, l->now_ms + WATCH_MS);
        return;
    }
    f->holds++;
    sent = xfer_has_sent(f->transfer);
    cancel_transfer(f);
    fail(f, sent, E_NETWORK, "it is not alive any more");
    drop_flow(f);
}

/* --- the request's body --- */

static void hold_client(struct relay_flow *f, bool holds)
{
    f->incoming = holds ? INCOMING_HELD : INCOMING_READING;
    exchange_pause(f->request->x, holds);
}

static ptrdiff_t read_window(struct relay_flow *f, uint64_t offset, void *p, size_t n)
{
    struct request *c = f->request;
    struct window *w = &f->up;

    if (c->x != NULL && f->incoming == INCOMING_UNREAD) {
        f->incoming = INCOMING_READING;
        exchange_read(c->x);
    }
    if (offset < w->at) {
        return E_NETWORK;
    }
    n = (size_t)min_u64(n, window_end(w) - offset);
    if (n == 0) {
        return f->incoming == INCOMING_ENDED ? 0 : XFER_NOT_YET;
    }
    memcpy(p, w->bytes.p + (offset - w->at), n);
    if (!f->kept) {
        window_drop(w, offset + n);
    }
    if (f->incoming == INCOMING_HELD && c->x != NULL &&
        window_end(w) - offset - n < RELAY_WINDOW_BYTES / 2) {
        hold_client(f, false);
    }
    return (ptrdiff_t)n;
}

static ptrdiff_t on_read(void *arg, uint64_t offset, void *p, size_t n)
{
    struct relay_flow *f = arg;
    ptrdiff_t got;

    f->holds++; /* the client may be found to be gone */
    got = read_window(f, offset, p, n);
    drop_flow(f);
    return got;
}

static void on_relay_data(struct request *c, struct slice bytes, bool end)
{
    struct relay_flow *f = c->relay;
    bool crowded;

    if (f == NULL || f->transfer == NULL || f->answered) {
        return; /* the rest of a body that was answered early */
    }
    buf_adds(&f->up.bytes, bytes);
    CHECK(f->up.bytes.rc == 0); /* held at a quarter of that */
    crowded = !exchange_keep(c->x, c->counted_bytes + f->up.bytes.cap, BODY_CAN_WAIT);
    if (end) {
        hold_client(f, false);
        f->incoming = INCOMING_ENDED;
    } else if (f->incoming == INCOMING_READING &&
               (crowded || f->up.bytes.n >= RELAY_WINDOW_BYTES)) {
        hold_client(f, true);
    }
    xfer_feed(f->transfer);
}

static void on_relay_gone(struct request *c)
{
    struct relay_flow *f = c->relay;

    if (f != NULL && f->waits) {
        f->waits = false;
        timer_stop(&f->again);
        drop_flow(f);
    } else if (f != NULL) {
        cancel_transfer(f);
    }
}

/* --- the response's body --- */

static int poll_body(struct body *b, uint64_t *upto)
{
    struct relay_flow *f = CONTAINER_OF(b, struct relay_flow, body);

    window_drop(&f->down, b->off);
    if (f->held && window_end(&f->down) - b->off < RESPONSE_BYTES / 2) {
        f->held = false;
        if (f->transfer != NULL) {
            xfer_resume(f->transfer);
        }
    }
    *upto = window_end(&f->down);
    if (f->complete && b->end == LENGTH_UNKNOWN) {
        b->end = *upto;
    }
    return *upto == b->off ? f->rc : 0;
}

static size_t piece_of_body(struct body *b, uint64_t off, size_t n, const char **bytes,
                            uint64_t *at)
{
    struct relay_flow *f = CONTAINER_OF(b, struct relay_flow, body);

    (void)at;
    *bytes = f->down.bytes.p + (off - f->down.at);
    return (size_t)min_u64(n, window_end(&f->down) - off);
}

static void close_body(struct body *b)
{
    struct relay_flow *f = CONTAINER_OF(b, struct relay_flow, body);

    f->sends = false;
    cancel_transfer(f);
    drop_flow(f);
}

static int on_body(void *arg, struct slice bytes)
{
    struct relay_flow *f = arg;
    bool pauses;

    if (!f->sends) {
        return 0;
    }
    window_drop(&f->down, f->body.off);
    buf_adds(&f->down.bytes, bytes);
    if (f->down.bytes.rc != 0) {
        return f->down.bytes.rc;
    }
    f->held = window_end(&f->down) - f->body.off >= RESPONSE_BYTES;
    pauses = f->held;
    if (f->body.wake != NULL) { /* which may be its end */
        f->body.wake(f->body.wake_arg);
    }
    return pauses ? XFER_PAUSE : 0;
}

/* --- the response's head --- */

/* Fields that the connection to the client has of its own. */
static bool is_of_the_connection(struct slice name)
{
    static const char *const names[] = {"connection",   "content-length",        "keep-alive",
                                        "server",       "transfer-encoding",     "trailer",
                                        "x-request-id", "x-content-type-options"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (slice_eqs(name, names[i])) {
            return true;
        }
    }
    return false;
}

static struct http_reply *copy_head(struct exchange *x, const struct xfer_head *h)
{
    struct arena *a = exchange_arena(x);
    struct http_reply *r = ARENA_NEW(a, struct http_reply);

    r->status = h->status;
    for (size_t i = 0; i < h->nfields && r->nfields < REPLY_FIELDS; i++) {
        struct slice name = h->fields[i].name;
        struct slice value = arena_copy(a, h->fields[i].value);
        if (slice_eqs(name, "date")) {
            r->date = value;
        } else if (slice_eqs(name, "content-security-policy")) {
            r->policy = value;
        } else if (!is_of_the_connection(name)) {
            reply_add(r, arena_copy(a, name), value);
        }
    }
    return r;
}

static bool has_bytes(const struct request *c, const struct xfer_head *h)
{
    return h->status != 204 && h->status != 304 && h->content_length != 0 &&
           (c->req.method != METHOD_HEAD || h->content_length != XFER_UNKNOWN);
}

static int on_head(void *arg, const struct xfer_head *h)
{
    static const struct body_ops ops = {poll_body, close_body, piece_of_body};
    struct relay_flow *f = arg;
    struct request *c = f->request;
    struct body *b = NULL;

    if (!h->framed) {
        return E_PROTOCOL;
    }
    f->holds++; /* the reply may end the exchange */
    f->answered = true;
    if (has_bytes(c, h)) {
        b = &f->body;
        *b = (struct body){.ops = &ops,
                           .end = h->content_length == XFER_UNKNOWN ? LENGTH_UNKNOWN
                                                                    : h->content_length,
                           .fd = -1};
        f->sends = true;
        f->holds++;
    }
    exchange_pace(c->x, c->request_log->pace);
    exchange_reply(c->x, copy_head(c->x, h), b);
    if (b == NULL && (f->incoming == INCOMING_READING ||
                      f->incoming == INCOMING_HELD)) { /* nobody needs the rest */
        cancel_transfer(f);
    }
    drop_flow(f);
    return 0;
}

static void on_done(void *arg, int rc, const struct err *why, uint64_t body_bytes)
{
    struct relay_flow *f = arg;
    bool sent = xfer_has_sent(f->transfer);

    (void)body_bytes;
    f->transfer = NULL;
    if (rc != 0) {
        fail(f, sent, rc, why->text);
    } else {
        f->complete = true;
        if (f->sends && f->body.wake != NULL) {
            f->body.wake(f->body.wake_arg);
        }
    }
    drop_flow(f);
}

/* --- starting --- */

/* As it is sent and signed: bytes that may not stand in a URL are escaped. */
static struct slice target_of(const struct request *c, struct arena *a)
{
    struct slice t = c->req.target;
    struct buf out = BUF_INIT(3 * t.n);

    for (size_t i = 0; i < t.n; i++) {
        uint8_t b = (uint8_t)t.p[i];
        if (b <= ' ' || b >= 0x7f || b == '\\' || b == '#') {
            buf_addf(&out, "%%%02X", b);
        } else {
            buf_byte(&out, (char)b);
        }
    }
    t = arena_copy(a, buf_slice(&out));
    buf_free(&out);
    return t;
}

/* What the other mirror must not read, or gets from us. */
static bool is_passed_on(struct slice name)
{
    static const char *const names[] = {"accept-encoding",
                                        "expect",
                                        "forwarded",
                                        "host",
                                        "keep-alive",
                                        "proxy-connection",
                                        "te",
                                        "trailer",
                                        "upgrade",
                                        "x-forwarded-for",
                                        "x-forwarded-host",
                                        "x-forwarded-proto",
                                        RELAY_FIELD};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (slice_eqs(name, names[i])) {
            return false;
        }
    }
    return true;
}

static size_t fields_of(struct request *c, const struct relay *r, struct slice target,
                        struct slice **out)
{
    struct slice *line = arena_alloc(&c->arena, (c->req.nfields + 2) * sizeof *line);
    char hop[RELAY_FIELD_ROOM];
    size_t n = 0;

    relay_sign(r, &c->req, target, hop);
    line[n++] = arena_fmt(&c->arena, "Host: " SLICE_FMT, SLICE_ARG(c->req.host));
    line[n++] = arena_fmt(&c->arena, RELAY_FIELD ": %s", hop);
    for (size_t i = 0; i < c->req.nfields; i++) {
        const struct http_field *f = &c->req.fields[i];
        if (is_passed_on(f->name) && f->value.n != 0) {
            line[n++] = arena_fmt(&c->arena, SLICE_FMT ": " SLICE_FMT, SLICE_ARG(f->name),
                                  SLICE_ARG(f->value));
        }
    }
    *out = line;
    return n;
}

static bool method_of_request(const struct request *c, enum xfer_method *out)
{
    switch (c->req.method) {
    case METHOD_GET:
        *out = XFER_GET;
        return true;
    case METHOD_HEAD:
        *out = XFER_HEAD;
        return true;
    case METHOD_PUT:
        *out = XFER_PUT;
        return true;
    case METHOD_POST:
        *out = XFER_POST;
        return true;
    case METHOD_PATCH:
        *out = XFER_PATCH;
        return true;
    case METHOD_DELETE:
        *out = XFER_DELETE;
        return true;
    case METHOD_OPTIONS:
    case METHOD_OTHER:
        break;
    }
    return false;
}

static struct xfer_loop *transfers_of(struct serve_loop *d)
{
    const struct xfer_limits limits = {.connections = CONNECTIONS, .host_connections = CONNECTIONS};

    if (d->relays == NULL) {
        d->relays = xfer_loop_open(d->loop->base, &limits);
    }
    return d->relays;
}

static void set_body(struct request *c, struct relay_flow *f, struct xfer_params *p)
{
    bool comes = c->req.has_body && c->req.content_length != 0 && c->control_body.p == NULL;

    f->kept = c->req.content_length <= KEPT_BODY_BYTES;
    f->incoming = comes ? INCOMING_UNREAD : INCOMING_NONE;
    p->body = c->control_body;
    if (comes) {
        p->body_read = on_read;
        p->body_bytes =
            c->req.content_length == LENGTH_UNKNOWN ? XFER_UNKNOWN : c->req.content_length;
        p->own_connection = !f->kept;
    }
}

/* False: it cannot be passed on. */
static bool start_transfer(struct request *c, struct relay_flow *f)
{
    static const struct xfer_events events = {on_head, on_body, on_done};
    struct loop *l = c->serve_loop->loop;
    struct slice target = target_of(c, &c->arena), *fields;
    struct xfer_params p = {.connect_timeout_ms = CONNECT_MS,
                            .idle_timeout_s = SILENCE_S,
                            .unacknowledged_ms = UNACKNOWLEDGED_MS};

    if (!method_of_request(c, &p.method)) {
        return false;
    }
    p.nfields = fields_of(c, f->relay, target, &fields);
    p.fields = fields;
    p.url = arena_fmt(&c->arena, "%s" SLICE_FMT, f->to.address, SLICE_ARG(target));
    set_body(c, f, &p);
    if (f->tries++ == 0) {
        relay_count(f->relay, &(struct relay_stats){.sent = 1});
    }
    f->rc = 0; /* of the try before */
    f->holds++;
    f->transfer = xfer_start(transfers_of(c->serve_loop), &p, &events, f);
    timer_set(&l->timers, &f->watch, l->now_ms + WATCH_MS);
    return true;
}

bool relay_start(struct request *c, void (*here)(struct request *c))
{
    static const struct request_reader reader = {on_relay_data, on_relay_gone};
    struct relay *r = cluster_relay(c->serve_loop->deps->cluster);
    struct relay_flow *f;
    struct member to;
    enum relay_place place;

    if (r == NULL || c->request_log->relayed) {
        return false;
    }
    place = place_of(c, r, &to);
    if (place == RELAY_HERE) {
        return false;
    }
    c->counted_bytes += 2 * RESPONSE_BYTES;
    if (!exchange_keep(c->x, c->counted_bytes, BODY_IN_USE)) {
        refuse_memory(c->x);
        return true;
    }
    f = NEW(struct relay_flow);
    f->holds = 1;
    f->request = request_hold(c);
    f->relay = r;
    f->here = here;
    f->to = place == RELAY_THERE ? to : (struct member){0};
    f->watch.fire = look_whether_alive;
    f->again.fire = go_on;
    f->patient_until_ms = c->serve_loop->loop->now_ms + RELAY_PATIENCE_MS;
    f->up =
        (struct window){BUF_INIT(8 * RELAY_WINDOW_BYTES), .drops_bytes = RELAY_WINDOW_BYTES / 4};
    f->down = (struct window){BUF_INIT(2 * RESPONSE_BYTES), .drops_bytes = RESPONSE_BYTES / 2};
    c->serve_loop->flows++;
    c->relay = f;
    c->reader = &reader;
    if (place == RELAY_AWAY) {
        wait_for_mirror(f);
    } else if (!start_transfer(c, f)) {
        c->reader = NULL;
        drop_flow(f);
        return false;
    }
    drop_flow(f);
    return true;
}

void relay_loop_close(struct xfer_loop **lp)
{
    xfer_loop_close(lp);
}

/* --- the other end --- */

bool relay_accept(struct serve_loop *d, struct exchange *x, struct request_log *v)
{
    const struct http_req *req = exchange_req(x);
    struct relay *r = cluster_relay(d->deps->cluster);
    struct sockaddr_storage peer;
    bool tls;

    if (r == NULL || http_req_field(req, RELAY_FIELD).p == NULL) {
        return true;
    }
    if (!relay_read(r, req, &peer, &tls)) {
        refuse(x, 403, "the field " RELAY_FIELD " is not signed by a mirror of this cluster\n");
        return false;
    }
    exchange_forwarded(x, &peer, tls, req->host);
    v->relayed = true;
    relay_count(r, &(struct relay_stats){.received = 1});
    return true;
}
