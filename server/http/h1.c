/* h1.c - HTTP/1.x on a connection: one exchange at a time, in the order of the requests. */
#include <inttypes.h>
#include <stdio.h>

#include "common/base/log.h"
#include "server/http/conn.h"
#include "server/http/h1_write.h"

enum { CHUNK_HEAD_BYTES = 10, SMALL_BYTES = 16, DRIVE_TURNS = 32 };

/* What one attempt to go on came to. */
enum progress { MOVED, WAITS, ENDS };

void h1_start(struct conn *c)
{
    c->h1 = (struct h1){.x = NULL};
    conn_become(c, CONN_HTTP1, &h1_ops);
    if (c->wire.ssl != NULL) {
        conn_restart(c);
    }
}

/* --- the answer's head ------------------------------------------------------------------------ */

/* Decides the answer's framing, and whether the connection outlives it. */
static void frame(struct h1 *h, struct h1_answer *a)
{
    const struct exchange *x = h->x;
    int status = x->reply->status;

    if (x->body != NULL && x->body->end == LENGTH_UNKNOWN) {
        h->chunked = x->req.version == HTTP_11 && exchange_sends_body(x);
        h->until_close = x->req.version == HTTP_10 && exchange_sends_body(x);
        h->close = h->close || h->until_close;
        a->framing = h->chunked ? H1_CHUNKED : H1_NO_BODY;
    } else if (status != 204 && (status != 304 || x->body != NULL)) {
        a->framing = H1_LENGTH;
        a->length = x->body != NULL ? x->body->end - x->body->off : 0;
    }
    a->close = h->close;
    a->keep_alive = !h->close && x->req.version == HTTP_10;
}

/* A request's body that nobody will read: worth swallowing to keep the connection, or not? */
static bool body_is_in_the_way(const struct conn *c)
{
    const struct h1 *h = &c->h1;

    return !h->x->arrived && h->x->request == REQUEST_DROPPED &&
           (h->x->expect_continue || h->framing == H1_CHUNKED ||
            h->body_left > c->http_loop->limits->discard_bytes);
}

static int send_head(struct conn *c)
{
    struct h1 *h = &c->h1;
    struct exchange *x = h->x;
    struct h1_answer a = {.reply = x->reply,
                          .now = slice_str(c->http_loop->loop->date),
                          .id = slice_of(x->req.id, 16),
                          .framing = H1_NO_BODY};
    size_t bound = h1_answer_bound(x->reply);

    if (bound > WIRE_PLAIN_BYTES) {
        return E_TOOBIG;
    }
    h->close = h->close || !h->keep_alive || conn_drains(c) || body_is_in_the_way(c);
    frame(h, &a);
    wire_commit(&c->wire, h1_answer_write(wire_reserve(&c->wire, bound), &a));
    exchange_answer_becomes(x, ANSWER_SENDING);
    http_loop_tick(c->http_loop);
    x->first_ns = http_loop_clock_ns(c->http_loop) - x->began_ns;
    return 0;
}

/* --- the answer's body ------------------------------------------------------------------------ */

static ssize_t send_copy(struct conn *c, size_t n)
{
    struct h1 *h = &c->h1;
    size_t frame = h->chunked ? CHUNK_HEAD_BYTES : 0;
    char head[CHUNK_HEAD_BYTES + 1];
    char *to;
    ssize_t got;

    n = min_u64(n, WIRE_PLAIN_BYTES - 2 * SMALL_BYTES);
    to = wire_reserve(&c->wire, n + 2 * SMALL_BYTES);
    if (wire_blocked(&c->wire)) {
        return E_AGAIN;
    }
    got = exchange_pull(h->x, to + frame, n);
    if (got <= 0) {
        return got;
    }
    if (h->chunked) {
        snprintf(head, sizeof head, "%08zx\r\n", (size_t)got);
        memcpy(to, head, CHUNK_HEAD_BYTES);
        memcpy(to + CHUNK_HEAD_BYTES + got, "\r\n", 2);
        frame += 2;
    }
    wire_commit(&c->wire, (size_t)got + frame);
    return got;
}

static ssize_t send_h1_file(struct conn *c, size_t n, bool whole)
{
    struct exchange *x = c->h1.x;
    ssize_t rc = exchange_present(x, (size_t)min_u64(n, SENDFILE_BYTES));
    int flushed;

    if (rc <= 0) {
        return rc;
    }
    if (whole && n > CORK_BYTES) {
        wire_cork(&c->wire, true);
    }
    flushed = wire_flush(&c->wire, true);
    if (flushed != 0) {
        return flushed;
    }
    return wire_sendfile(&c->wire, x->body->fd, x->body->off, (size_t)rc);
}

static enum progress finish_body(struct conn *c)
{
    if (c->h1.chunked) {
        wire_put(&c->wire, SLICE("0\r\n\r\n"));
    }
    exchange_answer_becomes(c->h1.x, ANSWER_SENT);
    wire_cork(&c->wire, false);
    return MOVED;
}

/* An answer that ends with its connection, and is not there yet: a FIN would make it look whole.
 * Its body may have learned its end meanwhile; the peer has not. */
bool h1_end_would_lie(const struct conn *c)
{
    const struct exchange *x = c->h1.x;

    return x != NULL && x->answer == ANSWER_SENDING && c->h1.until_close;
}

static enum progress send_body(struct conn *c)
{
    struct exchange *x = c->h1.x;
    bool whole = x->body->ops->poll == NULL;
    size_t budget = whole ? WHOLE_BYTES : DRIVE_BYTES;

    while (budget > 0) {
        ssize_t n = x->cut ? E_IO : exchange_ready(x, budget);
        if (n == 0) {
            return finish_body(c);
        }
        if (n > 0) {
            bool by_file = body_is_file(x->body) && !c->h1.chunked && n > COPY_BYTES &&
                           wire_takes_files(&c->wire);
            n = by_file ? send_h1_file(c, (size_t)n, whole) : send_copy(c, (size_t)n);
        }
        if (n == E_AGAIN) {
            return WAITS;
        }
        if (n <= 0) { /* the peer must see that the answer is not whole: conn.c sees to it */
            wire_flush(&c->wire, false);
            return ENDS;
        }
        exchange_sent(x, (size_t)n);
        budget -= min_u64(budget, (uint64_t)n);
    }
    conn_yield(c);
    return WAITS;
}

static enum progress h1_send(struct conn *c)
{
    struct exchange *x = c->h1.x;

    if (x == NULL || x->answer == ANSWER_AWAITED || x->answer == ANSWER_SENT ||
        wire_flush(&c->wire, true) == E_AGAIN) {
        return WAITS;
    }
    if (x->answer == ANSWER_READY && send_head(c) != 0) {
        log_error("http.reply", "status=%d reply_too_long=yes", x->reply->status);
        return ENDS;
    }
    if (!exchange_sends_body(x)) {
        exchange_answer_becomes(x, ANSWER_SENT);
        return MOVED;
    }
    return send_body(c);
}

/* --- requests --------------------------------------------------------------------------------- */

static void h1_close(struct conn *c)
{
    if (h1_end_would_lie(c)) {
        wire_break(&c->wire);
    }
    if (c->h1.x != NULL) {
        exchange_finish(c->h1.x, false);
        c->h1.x = NULL;
    }
}

/* Not even a request: an answer without an exchange, and the end. */
static enum progress refuse_h1_request(struct conn *c, int status)
{
    char text[320];
    const char *reason = http_reason(status);
    int n = snprintf(text, sizeof text,
                     "HTTP/1.1 %d %s\r\ndate: %s\r\nserver: mirrord\r\ncontent-type: text/plain\r\n"
                     "x-content-type-options: nosniff\r\n"
                     "content-length: %zu\r\nconnection: close\r\n\r\n%s\n",
                     status, reason, c->http_loop->loop->date, strlen(reason) + 1, reason);

    count(status == 408 ? &c->http_loop->counters.limited : &c->http_loop->counters.protocol_errors,
          1);
    wire_put(&c->wire, slice_of(text, (size_t)n));
    conn_linger(c);
    return MOVED;
}

static const struct http_field *keep_fields(struct exchange *x, const struct http_field *fields,
                                            size_t n)
{
    struct http_field *kept = arena_alloc(&x->arena, n * sizeof *kept);

    return n != 0 ? memcpy(kept, fields, n * sizeof *kept) : kept;
}

static enum progress begin_exchange(struct conn *c, size_t n, const struct h1_limits *limits)
{
    struct h1 *h = &c->h1;
    struct exchange *x = exchange_new(c);
    struct slice bytes = arena_copy(&x->arena, slice_of(c->in.p, n));
    struct h1_head head;
    int rc = h1_parse_head((char *)(uintptr_t)bytes.p, n, limits, &head, c->http_loop->fields);

    if (rc < 0) {
        exchange_finish(x, false);
        return refuse_h1_request(c, -rc);
    }
    conn_consume(c, n);
    *h = (struct h1){.x = x,
                     .framing = head.framing,
                     .keep_alive = head.keep_alive,
                     .body_left = head.framing == H1_LENGTH ? head.content_length : 0};
    x->expect_continue = head.expect_continue;
    x->arrived = head.framing == H1_NO_BODY;
    x->req.version = head.version;
    x->req.method_text = head.method;
    x->req.target = head.target;
    x->req.host = head.host;
    x->req.fields = keep_fields(x, c->http_loop->fields, head.nfields);
    x->req.nfields = head.nfields;
    x->req.has_body = head.framing != H1_NO_BODY;
    x->req.content_length = head.framing == H1_CHUNKED ? LENGTH_UNKNOWN : head.content_length;
    http_loop_tick(c->http_loop);
    exchange_begin(x);
    return MOVED;
}

static enum progress receive_head(struct conn *c)
{
    const struct http_limits *l = c->http_loop->limits;
    const struct h1_limits limits = {l->header_bytes, l->header_fields, l->uri_bytes};
    struct h1 *h = &c->h1;
    ptrdiff_t end;
    int got;

    if (wire_blocked(&c->wire)) {
        return WAITS; /* who does not read answers gets no more of them */
    }
    if (c->in.n > 0) {
        if (h->head_begun_ms == 0) {
            h->head_begun_ms = c->http_loop->loop->now_ms;
        }
        end = h1_head_end(slice_of(c->in.p, c->in.n), &limits, &h->scanned);
        if (end < 0) {
            return refuse_h1_request(c, (int)-end);
        }
        if (end > 0) {
            return begin_exchange(c, (size_t)end, &limits);
        }
    }
    if (conn_drains(c) && c->in.n == 0) {
        return ENDS;
    }
    got = conn_more(c);
    return got > 0 ? MOVED : got == E_AGAIN ? WAITS : ENDS;
}

/* One piece of the request's body out of the input. */
static enum progress take_body(struct conn *c)
{
    struct h1 *h = &c->h1;
    struct exchange *x = h->x;
    struct slice data;
    size_t used;
    int rc = 0;

    if (h->framing == H1_LENGTH) {
        used = (size_t)min_u64(c->in.n, h->body_left);
        data = slice_of(c->in.p, used);
        h->body_left -= used;
        rc = h->body_left == 0;
    } else {
        rc = h1_chunks_feed(&h->chunks, slice_of(c->in.p, c->in.n), &used, &data);
        if (rc < 0) {
            count(&c->http_loop->counters.protocol_errors, 1);
            if (x->answer >= ANSWER_SENDING) {
                return ENDS;
            }
            h1_close(c);
            return refuse_h1_request(c, -rc);
        }
    }
    conn_consume(c, used);
    x->received += data.n;
    x->arrived = rc == 1;
    if (x->request == REQUEST_READING) {
        if (data.n > 0 || x->arrived) {
            exchange_deliver(x, data, x->arrived);
        }
    } else {
        h->discarded += data.n;
        if (h->discarded > c->http_loop->limits->discard_bytes) {
            return ENDS;
        }
    }
    return MOVED;
}

static enum progress receive_body(struct conn *c)
{
    struct exchange *x = c->h1.x;
    int got;

    if (x->request == REQUEST_PAUSED ||
        (x->request != REQUEST_READING && x->answer != ANSWER_SENT)) {
        return WAITS; /* the socket's own window holds the peer */
    }
    if (x->request == REQUEST_READING && x->expect_continue) {
        x->expect_continue = false;
        if (x->answer < ANSWER_SENDING) {
            wire_put(&c->wire, SLICE("HTTP/1.1 100 Continue\r\n\r\n"));
            wire_flush(&c->wire, false);
        }
    }
    if (c->in.n > 0) {
        return take_body(c);
    }
    got = conn_more(c);
    return got > 0 ? MOVED : got == E_AGAIN ? WAITS : ENDS;
}

/* The request is whole and its answer on the way: the only news is more requests, kept for later,
 * or the end. */
static enum progress watch_h1_peer(struct conn *c)
{
    int got;

    if (c->in.n > 0) {
        return WAITS;
    }
    if (c->h1.x->answer == ANSWER_AWAITED) {
        wire_look_again(&c->wire);
    }
    got = conn_more(c);
    if (got > 0 || got == E_AGAIN) {
        return WAITS;
    }
    /* A peer that half-closes after its request still gets an answer that has begun; one that we
     * have not even begun is not worth the work: nearly always the peer is gone altogether. */
    c->h1.close = true;
    return got == 0 && c->h1.x->answer != ANSWER_AWAITED ? WAITS : ENDS;
}

static enum progress h1_receive(struct conn *c)
{
    struct exchange *x = c->h1.x;

    if (x == NULL) {
        return receive_head(c);
    }
    return x->arrived ? watch_h1_peer(c) : receive_body(c);
}

/* --- the state machine ------------------------------------------------------------------------ */

static int next_request(struct conn *c)
{
    struct h1 *h = &c->h1;
    bool unread = !h->x->arrived;
    bool ends = h->close;

    if (h->x->body_bytes > COPY_BYTES) {
        http_loop_tick(c->http_loop);
    }
    exchange_finish(h->x, true);
    h->x = NULL;
    if (ends && (unread || c->in.n > 0)) {
        conn_linger(c);
        return 0;
    }
    if (ends) {
        return CONN_END;
    }
    *h = (struct h1){.x = NULL};
    conn_restart(c);
    return 0;
}

static bool h1_request_finished(const struct h1 *h)
{
    const struct exchange *x = h->x;

    return x != NULL && x->answer == ANSWER_SENT &&
           (x->arrived || (h->close && x->request == REQUEST_DROPPED));
}

static int h1_drive(struct conn *c)
{
    enum progress in;
    enum progress out;
    unsigned turns = 0;

    do {
        if (turns++ == DRIVE_TURNS) {
            conn_yield(c);
            break;
        }
        in = h1_receive(c);
        if (in == ENDS || c->state != CONN_HTTP1) {
            return in == ENDS ? CONN_END : 0;
        }
        out = h1_send(c);
        if (out == ENDS) {
            return CONN_END;
        }
        if (h1_request_finished(&c->h1)) {
            int rc = next_request(c);
            if (rc != 0 || c->state != CONN_HTTP1) {
                return rc;
            }
            in = MOVED;
        }
    } while (in == MOVED || out == MOVED);
    return 0;
}

/* Bytes of an answer wait for the peer. */
static bool waits_for_reader(const struct conn *c)
{
    const struct exchange *x = c->h1.x;

    return wire_blocked(&c->wire) ||
           (x != NULL && x->answer != ANSWER_AWAITED && !c->wire.writable);
}

static uint64_t h1_due(const struct conn *c)
{
    const struct http_limits *l = c->http_loop->limits;
    const struct exchange *x = c->h1.x;

    if (waits_for_reader(c)) {
        return min_u64(c->out_ms + l->stall_ms, reader_rate_due(&c->taken, &l->reader));
    }
    if (x == NULL) {
        return c->h1.head_begun_ms != 0 ? c->h1.head_begun_ms + l->header_ms
                                        : c->since_ms + l->idle_ms;
    }
    return x->answer == ANSWER_SENT && x->request == REQUEST_DROPPED ? c->out_ms + l->stall_ms
                                                                     : exchange_slow_due(x);
}

static int h1_expire(struct conn *c)
{
    const struct http_limits *l = c->http_loop->limits;
    struct exchange *x = c->h1.x;
    uint64_t now_ms = c->http_loop->loop->now_ms;

    if (waits_for_reader(c) && now_ms < c->out_ms + l->stall_ms &&
        !reader_rate_look(&c->taken, &l->reader, now_ms, true, c->answered_bytes)) {
        return 0;
    }
    if (x == NULL && c->h1.head_begun_ms != 0 && !wire_blocked(&c->wire)) {
        refuse_h1_request(c, 408);
        return 0;
    }
    if (x != NULL && !wire_blocked(&c->wire) && exchange_slow_due(x) != UINT64_MAX &&
        !exchange_too_slow(x, c->http_loop->loop->now_ms)) {
        return 0;
    }
    count(&c->http_loop->counters.limited, x != NULL || wire_blocked(&c->wire));
    return CONN_END;
}

static uint64_t h1_idle_ms(const struct conn *c)
{
    return c->h1.x == NULL && !wire_blocked(&c->wire) ? c->since_ms : UINT64_MAX;
}

static void h1_drain(struct conn *c)
{
    conn_kick(c); /* an idle one ends in receive_head(), a busy one with its answer */
}

static void h1_wake(struct exchange *x)
{
    (void)x; /* the kick is all it takes */
}

const struct conn_ops h1_ops = {.drive = h1_drive,
                                .due = h1_due,
                                .expire = h1_expire,
                                .idle_ms = h1_idle_ms,
                                .drain = h1_drain,
                                .wake = h1_wake,
                                .close = h1_close};
