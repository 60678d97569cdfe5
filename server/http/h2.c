#include "server/http/h2.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "server/net/sock.h"

enum {
    CONNECTION_WINDOW = 4 * 1024 * 1024,
    OUTBOUND_MAX = 2000, /* frames that wait for a peer that does not read */
    OUTBOUND_HIGH = 256, /* from here on we read no more of its */
    USELESS_BURST = 1000,
    USELESS_PER_S = 50,
    SLACK_BYTES = 1024 * 1024,
    SCAN_MS = 1000,
    NOTICE_MS = 200, /* between "no new streams, please" and the last one that counts */
    DRIVE_TURNS = 32,
};

static const struct conn_ops h2_ops;

/* --- limits ---------------------------------------------------------------------------------------------------------- */

static bool take(struct bucket *b, uint64_t now_ms, uint32_t burst, uint32_t per_s)
{
    uint64_t full = (uint64_t)burst * 1000;

    b->milli = b->at_ms == 0 ? full : min_u64(full, b->milli + (now_ms - b->at_ms) * per_s);
    b->at_ms = now_ms;
    if (b->milli < 1000) {
        return false;
    }
    b->milli -= 1000;
    return true;
}

void h2_calm(struct h2 *h)
{
    count(&h->conn->lane->counters.limited, 1);
    nghttp2_session_terminate_session(h->session, NGHTTP2_ENHANCE_YOUR_CALM);
}

void h2_useless(struct h2 *h)
{
    if (!take(&h->useless, h->conn->lane->loop->now_ms, USELESS_BURST, USELESS_PER_S)) {
        h2_calm(h);
    }
}

void h2_reset(struct h2 *h)
{
    const struct http_limits *l = h->conn->lane->limits;

    if (!take(&h->resets, h->conn->lane->loop->now_ms, l->reset_burst, l->resets_per_s)) {
        h2_calm(h);
    }
}

static bool floods(const struct h2 *h)
{
    return h->conn->wire.bytes_in / 8 > h->useful_bytes + SLACK_BYTES ||
           nghttp2_session_get_outbound_queue_size(h->session) > OUTBOUND_MAX;
}

/* --- opening and closing ----------------------------------------------------------------------------------------------- */

static nghttp2_session *session_new(struct h2 *h)
{
    const struct http_limits *l = h->conn->lane->limits;
    nghttp2_session_callbacks *on = NULL;
    nghttp2_option *option = NULL;
    nghttp2_session *session = NULL;

    CHECK(nghttp2_session_callbacks_new(&on) == 0 && nghttp2_option_new(&option) == 0);
    h2_hear(on);
    h2_speak(on);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_stream_reset_rate_limit(option, l->reset_burst, l->resets_per_s);
    CHECK(nghttp2_session_server_new2(&session, on, h, option) == 0);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(on);
    return session;
}

/* RFC 9113 6.8: first a warning, then, after what was under way in the peer's direction, the last stream. */
static void h2_drain(struct conn *c)
{
    nghttp2_submit_shutdown_notice(c->h2->session);
    c->h2->goaway_ms = c->lane->loop->now_ms + NOTICE_MS;
    conn_kick(c);
}

int h2_start(struct conn *c)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, c->lane->limits->streams},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, c->lane->limits->header_bytes},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    struct h2 *h = NEW(struct h2);

    h->conn = c;
    list_init(&h->streams);
    list_init(&h->woken);
    h->scanned_ms = c->lane->loop->now_ms;
    h->session = session_new(h);
    CHECK(nghttp2_submit_settings(h->session, NGHTTP2_FLAG_NONE, settings, ARRAY_LEN(settings)) ==
              0 &&
          nghttp2_session_set_local_window_size(h->session, NGHTTP2_FLAG_NONE, 0,
                                                CONNECTION_WINDOW) == 0);
    sock_short_queue(c->wire.fd);
    c->h2 = h;
    c->ops = &h2_ops;
    c->again = true;
    conn_restart(c);
    count(&c->lane->counters.h2, 1);
    if (listener_retired(c->listener)) {
        h2_drain(c);
    }
    return 0;
}

void h2_stream_end(struct h2 *h, struct exchange *x, bool complete)
{
    list_remove(&x->node);
    h->nstreams--;
    nghttp2_session_consume_connection(h->session, x->held.n); /* nobody will */
    exchange_finish(x, complete);
    conn_restart(h->conn);
}

static void h2_close(struct conn *c)
{
    struct h2 *h = c->h2;

    while (!list_empty(&h->streams)) {
        h2_stream_end(h, LIST_ITEM(h->streams.next, struct exchange, node), false);
    }
    nghttp2_session_del(h->session);
    free(h);
    c->h2 = NULL;
    count(&c->lane->counters.h2, (uint64_t)-1);
}

/* --- driving ----------------------------------------------------------------------------------------------------------- */

/* 1: something came; 0: nothing now; CONN_END is told as E_CANCELLED. */
static int receive(struct h2 *h)
{
    struct conn *c = h->conn;
    ssize_t used;

    if (wire_blocked(&c->wire) &&
        nghttp2_session_get_outbound_queue_size(h->session) > OUTBOUND_HIGH) {
        return 0;
    }
    if (c->in.n == 0) {
        int got = conn_more(c);
        if (got == E_AGAIN && h->nstreams > 0) {
            wire_look_again(&c->wire);
            got = conn_more(c);
        }
        if (got <= 0) {
            return got == E_AGAIN ? 0 : E_CANCELLED;
        }
    }
    used = nghttp2_session_mem_recv(h->session, (const uint8_t *)c->in.p, c->in.n);
    if (used < 0) { /* flooded, or not HTTP/2 at all; what can be told the peer is queued already */
        count(&c->lane->counters.protocol_errors, 1);
        return E_PROTOCOL;
    }
    conn_consume(c, (size_t)used);
    if (floods(h)) {
        h2_calm(h);
    }
    return 1;
}

static int answer_woken(struct h2 *h)
{
    struct list *n;
    int rc = 0;

    while (rc == 0 && (n = list_pop_front(&h->woken)) != NULL) {
        struct exchange *x = LIST_ITEM(n, struct exchange, woken);
        h2_feed(h, x);
        rc = h2_answer(h, x);
    }
    return nghttp2_is_fatal(rc) ? E_INTERNAL : 0;
}

static int transmit(struct h2 *h)
{
    struct wire *w = &h->conn->wire;

    while (!wire_blocked(w) || wire_flush(w, false) == 0) {
        const uint8_t *bytes;
        ssize_t n = nghttp2_session_mem_send(h->session, &bytes);
        if (n < 0) {
            return E_INTERNAL;
        }
        if (n == 0) {
            break;
        }
        wire_put(w, slice_of(bytes, (size_t)n));
    }
    return 0;
}

static int h2_drive(struct conn *c)
{
    struct h2 *h = c->h2;
    int got = 1;
    int rc = 0;

    h->budget = DRIVE_BYTES;
    for (int turn = 0; rc == 0 && got > 0; turn++) {
        if (turn == DRIVE_TURNS) {
            conn_yield(c);
            break;
        }
        got = receive(h);
        rc = answer_woken(h);
        rc = rc != 0 ? rc : transmit(h);
    }
    if (got == E_CANCELLED) {
        return CONN_END;
    }
    if (rc != 0 || got < 0) {
        return rc != 0 ? rc : CONN_END;
    }
    if (h->budget == 0) {
        conn_yield(c);
    }
    if (!nghttp2_session_want_read(h->session) && !nghttp2_session_want_write(h->session)) {
        return CONN_END;
    }
    return 0;
}

/* --- time ---------------------------------------------------------------------------------------------------------------- */

static uint64_t h2_due(const struct conn *c)
{
    const struct http_limits *l = c->lane->limits;
    const struct h2 *h = c->h2;
    uint64_t due = h->nstreams > 0 ? h->scanned_ms + SCAN_MS : c->since_ms + l->idle_ms;

    if (h->head_begun_ms != 0) {
        due = min_u64(due, h->head_begun_ms + l->header_ms);
    }
    if (h->goaway_ms != 0) {
        due = min_u64(due, h->goaway_ms);
    }
    return wire_blocked(&c->wire) ? min_u64(due, c->out_ms + l->stall_ms) : due;
}

/* A peer that gives no window for an answer, trickles its upload, or has not ended a body so long after its answer, loses
 * that stream. */
static void scan_streams(struct h2 *h, uint64_t now_ms)
{
    const struct http_limits *l = h->conn->lane->limits;

    h->scanned_ms = now_ms;
    LIST_EACH (&h->streams, n) {
        struct exchange *x = LIST_ITEM(n, struct exchange, node);
        bool idle = now_ms - x->moved_ms >= l->stall_ms;
        bool starved = idle && x->head_sent && !x->sent_all && !x->deferred;
        bool left = idle && x->sent_all && !x->received_all;
        if (starved || left || exchange_too_slow(x, now_ms)) {
            count(&h->conn->lane->counters.limited, 1);
            nghttp2_submit_rst_stream(h->session, NGHTTP2_FLAG_NONE, x->stream_id, NGHTTP2_CANCEL);
        }
    }
}

static int h2_expire(struct conn *c)
{
    const struct http_limits *l = c->lane->limits;
    struct h2 *h = c->h2;
    uint64_t now_ms = c->lane->loop->now_ms;

    if (wire_blocked(&c->wire) && now_ms >= c->out_ms + l->stall_ms) {
        count(&c->lane->counters.limited, 1);
        return E_TIMEOUT;
    }
    if (h->head_begun_ms != 0 && now_ms >= h->head_begun_ms + l->header_ms) {
        h2_calm(h);
        h->head_begun_ms = 0;
        return 0;
    }
    if (h->goaway_ms != 0 && now_ms >= h->goaway_ms) {
        h->goaway_ms = 0;
        nghttp2_submit_goaway(h->session, NGHTTP2_FLAG_NONE,
                              nghttp2_session_get_last_proc_stream_id(h->session), NGHTTP2_NO_ERROR,
                              NULL, 0);
        return 0;
    }
    if (h->nstreams > 0) {
        scan_streams(h, now_ms);
        return 0;
    }
    if (now_ms < c->since_ms + l->idle_ms) {
        return 0;
    }
    if (!nghttp2_session_want_read(h->session) || wire_blocked(&c->wire)) {
        return CONN_END;
    }
    nghttp2_session_terminate_session(h->session, NGHTTP2_NO_ERROR);
    conn_restart(
        c); /* should the GOAWAY not even get out, the next expiry finds the wire blocked */
    return 0;
}

static void h2_wake(struct exchange *x)
{
    if (!list_linked(&x->woken)) {
        list_push_back(&x->conn->h2->woken, &x->woken);
    }
}

static const struct conn_ops h2_ops = {.drive = h2_drive,
                                       .due = h2_due,
                                       .expire = h2_expire,
                                       .drain = h2_drain,
                                       .wake = h2_wake,
                                       .close = h2_close};
