#include "server/http/h2.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "server/net/sock.h"

enum {
    OUTBOUND_MAX = 2000, /* frames that wait for a peer that does not read */
    OUTBOUND_HIGH = 256, /* from here on we read no more of its */
    USELESS_BURST = 1000,
    USELESS_PER_S = 50,
    SLACK_BYTES = 1024 * 1024,
    SCAN_MS = 1000,
    NOTICE_MS = 200, /* between "no new streams, please" and the last one that counts */
    DRIVE_TURNS = 32,
    LAST_STREAM = 0x7fffffff,
};

static const struct conn_ops h2_ops;

/* --- states ------------------------------------------------------------------------------------------------------------ */

static const struct state of_stream[] = {
    [H2_STREAM_HEAD] = {"head", STATE(H2_STREAM_OPEN) | STATE(H2_STREAM_HALF_CLOSED_REMOTE) |
                                    STATE(H2_STREAM_CLOSED)},
    [H2_STREAM_OPEN] = {"open", STATE(H2_STREAM_HALF_CLOSED_REMOTE) |
                                    STATE(H2_STREAM_HALF_CLOSED_LOCAL) | STATE(H2_STREAM_CLOSED)},
    [H2_STREAM_HALF_CLOSED_REMOTE] = {"half-closed (remote)", STATE(H2_STREAM_CLOSED)},
    [H2_STREAM_HALF_CLOSED_LOCAL] = {"half-closed (local)", STATE(H2_STREAM_CLOSED)},
    [H2_STREAM_CLOSED] = {"closed", 0},
};
static const struct state of_opening[] = {
    [H2_AWAITS_PREFACE] = {"awaits the preface", STATE(H2_AWAITS_SETTINGS)},
    [H2_AWAITS_SETTINGS] = {"awaits SETTINGS", STATE(H2_OPENED)},
    [H2_OPENED] = {"opened", 0},
};
static const struct state of_closing[] = {
    [H2_SERVING] = {"serving", STATE(H2_WARNING) | STATE(H2_OVER)},
    [H2_WARNING] = {"warning", STATE(H2_WARNED) | STATE(H2_OVER)},
    [H2_WARNED] = {"warned", STATE(H2_LAST_NAMED) | STATE(H2_OVER)},
    [H2_LAST_NAMED] = {"last named", STATE(H2_OVER)},
    [H2_OVER] = {"over", 0},
};
const struct state_table h2_stream_states = STATE_TABLE("HTTP/2 stream", of_stream);
const struct state_table h2_openings = STATE_TABLE("opening of HTTP/2", of_opening);
const struct state_table h2_closings = STATE_TABLE("end of HTTP/2", of_closing);

void h2_stream_becomes(struct h2_stream *st, enum h2_stream_state to)
{
    st->state = state_step(&h2_stream_states, st->state, to);
}

void h2_opening_becomes(struct h2 *h, enum h2_opening to)
{
    h->opening = state_step(&h2_openings, h->opening, to);
}

void h2_closing_becomes(struct h2 *h, enum h2_closing to)
{
    h->closing = state_step(&h2_closings, h->closing, to);
}

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
    h2_fail(h, NGHTTP2_ENHANCE_YOUR_CALM);
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
    return h->conn->wire.bytes_in / 8 > h->useful_bytes + SLACK_BYTES || h->queued > OUTBOUND_MAX;
}

/* --- opening and closing ----------------------------------------------------------------------------------------------- */

struct h2_stream *h2_stream(const struct h2 *h, uint32_t id)
{
    struct h2_stream *st = h->slot[id / 2 % STREAM_SLOTS];

    while (st != NULL && st->id != id) {
        st = st->next;
    }
    return st;
}

/* RFC 9113 6.8: first a warning, then, after what was under way in the peer's direction, the last stream. */
static void h2_drain(struct conn *c)
{
    if (c->h2->closing == H2_SERVING) { /* 6.8: a second warning would name more than was named */
        h2_closing_becomes(c->h2, H2_WARNING);
    }
    conn_kick(c);
}

int h2_start(struct conn *c)
{
    struct h2 *h = NEW(struct h2);

    h->conn = c;
    list_init(&h->streams);
    list_init(&h->woken);
    list_init(&h->sending);
    h->scanned_ms = c->lane->loop->now_ms;
    h->window = h->first_window = WINDOW_USUAL;
    h->room = CONNECTION_WINDOW;
    h->frame_max = FRAME_USUAL;
    hpack_init(&h->heads);
    CHECK(nghttp2_hd_inflate_new(&h->inflater) == 0);
    h2_settings(h);
    sock_short_queue(c->wire.fd);
    c->h2 = h;
    conn_become(c, CONN_HTTP2, &h2_ops);
    conn_restart(c);
    count(&c->lane->counters.h2, 1);
    if (listener_retired(c->listener)) {
        h2_drain(c);
    }
    return 0;
}

void h2_note_cut(struct h2 *h, uint32_t stream)
{
    h->cut[h->cut_at++ % CUT_STREAMS] = stream;
}

void h2_stream_end(struct h2 *h, struct h2_stream *st, bool complete)
{
    struct h2_stream **at = &h->slot[st->id / 2 % STREAM_SLOTS];

    while (*at != st) {
        at = &(*at)->next;
    }
    *at = st->next;
    if (!h2_has_all(st)) {
        h2_note_cut(h, st->id);
    }
    if (st->state != H2_STREAM_CLOSED) { /* a reset, or the end of the connection */
        h2_stream_becomes(st, H2_STREAM_CLOSED);
    }
    list_remove(&st->node);
    list_remove_if(&st->sending);
    list_remove_if(&st->woken);
    h->nstreams--;
    h2_consume(h, st->x->held.n); /* nobody will */
    exchange_finish(st->x, complete);
    conn_restart(h->conn);
}

static void h2_close(struct conn *c)
{
    struct h2 *h = c->h2;

    if (h->closing != H2_OVER) {
        h2_closing_becomes(h, H2_OVER);
    }
    while (!list_empty(&h->streams)) {
        h2_stream_end(h, LIST_ITEM(h->streams.next, struct h2_stream, node), false);
    }
    nghttp2_hd_inflate_del(h->inflater);
    hpack_fini(&h->heads);
    free(h);
    c->h2 = NULL;
    count(&c->lane->counters.h2, (uint64_t)-1);
}

/* --- driving ----------------------------------------------------------------------------------------------------------- */

/* 1: something came; 0: nothing now; CONN_END is told as E_CANCELLED. */
static int receive(struct h2 *h)
{
    struct conn *c = h->conn;

    if (wire_blocked(&c->wire) && h->queued > OUTBOUND_HIGH) {
        return 0;
    }
    if (c->in.n == 0 || h->waits) {
        int got = conn_more(c);
        if (got == E_AGAIN && h->nstreams > 0) {
            wire_look_again(&c->wire);
            got = conn_more(c);
        }
        if (got <= 0) {
            return got == E_AGAIN ? 0 : E_CANCELLED;
        }
    }
    conn_consume(c, h2_take(h, c->in.p, c->in.n));
    h->waits = c->in.n != 0; /* the beginning of a frame */
    if (floods(h)) {
        h2_calm(h);
    }
    return 1;
}

static void answer_woken(struct h2 *h)
{
    struct list batch;
    struct list *n;

    list_init(&batch); /* who cannot answer on a wire that is blocked stays woken */
    while ((n = list_pop_front(&h->woken)) != NULL) {
        list_push_back(&batch, n);
    }
    while ((n = list_pop_front(&batch)) != NULL) {
        struct h2_stream *st = LIST_ITEM(n, struct h2_stream, woken);
        if (st->doom == H2_SHED) {
            count(&h->conn->lane->counters.limited, 1);
            h2_kill(h, st, NGHTTP2_ENHANCE_YOUR_CALM);
            continue;
        }
        h2_feed(h, st);
        h2_answer(h, st);
    }
}

static int h2_drive(struct conn *c)
{
    struct h2 *h = c->h2;
    int got = 1;

    h->budget = DRIVE_BYTES;
    if (h->closing == H2_WARNING) {
        h2_closing_becomes(h, H2_WARNED);
        h2_goaway(h, LAST_STREAM, NGHTTP2_NO_ERROR);
        h->goaway_ms = c->lane->loop->now_ms + NOTICE_MS;
    }
    for (int turn = 0; got > 0; turn++) {
        if (turn == DRIVE_TURNS) {
            conn_yield(c);
            break;
        }
        h->queued = wire_blocked(&c->wire) && wire_flush(&c->wire, false) != 0 ? h->queued : 0;
        lane_tick(c->lane);
        got = receive(h);
        if (h->closing == H2_OVER) {
            break;
        }
        lane_tick(c->lane);
        answer_woken(h);
        h2_send(h);
    }
    if (h->closing == H2_OVER || got < 0) {
        return CONN_END;
    }
    if ((h->closing == H2_LAST_NAMED || h->peer_leaves) && h->nstreams == 0) {
        conn_linger(c); /* the peer gives windows back while it reads its last answer */
        return 0;
    }
    if (h->budget == 0) {
        conn_yield(c);
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
    if (h->closing == H2_WARNED) {
        due = min_u64(due, h->goaway_ms);
    }
    return wire_blocked(&c->wire) ? min_u64(due, c->out_ms + l->stall_ms) : due;
}

/* Who has a window and waits for its turn is as idle as all of them: a slow peer may well need minutes for a round of many. */
static uint64_t moved_ms(const struct h2 *h, const struct h2_stream *st)
{
    return list_linked(&st->sending) ? max_u64(st->x->moved_ms, h->sent_ms) : st->x->moved_ms;
}

/* A peer that gives no window for an answer, trickles its upload, or has not ended a body so long after its answer, loses
 * that stream. */
static bool is_sending(const struct h2_stream *st)
{
    return st->x->answer == ANSWER_SENDING;
}

/* The peer holds this stream alone. */
static bool is_held(const struct h2 *h, const struct h2_stream *st)
{
    return is_sending(st) && st->window <= 0 && h->window > 0 && !wire_blocked(&h->conn->wire);
}

/* Or all of them: then they are judged together, many on a slow line have little each. */
static bool all_are_held(const struct h2 *h)
{
    if (h->window > 0 && !wire_blocked(&h->conn->wire)) {
        return false;
    }
    LIST_EACH (&h->streams, n) {
        if (is_sending(LIST_ITEM(n, struct h2_stream, node))) {
            return true;
        }
    }
    return false;
}

static void scan_streams(struct h2 *h, uint64_t now_ms)
{
    const struct http_limits *l = h->conn->lane->limits;

    h->scanned_ms = now_ms;
    LIST_EACH (&h->streams, n) {
        struct h2_stream *st = LIST_ITEM(n, struct h2_stream, node);
        bool idle = now_ms - moved_ms(h, st) >= l->stall_ms;
        bool starved = idle && is_sending(st);
        bool left = idle && st->state == H2_STREAM_HALF_CLOSED_LOCAL;
        bool slow =
            reader_rate_look(&st->taken, &l->reader, now_ms, is_held(h, st), st->x->body_bytes);
        if (starved || left || slow || exchange_too_slow(st->x, now_ms)) {
            count(&h->conn->lane->counters.limited, 1);
            h2_kill(h, st, NGHTTP2_CANCEL);
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
        return CONN_END;
    }
    if (h->closing == H2_WARNED && now_ms >= h->goaway_ms) {
        h2_closing_becomes(h, H2_LAST_NAMED);
        h2_goaway(h, h->last_stream, NGHTTP2_NO_ERROR);
        return 0;
    }
    if (h->nstreams > 0) {
        if (reader_rate_look(&c->taken, &l->reader, now_ms, all_are_held(h), c->answered_bytes)) {
            count(&c->lane->counters.limited, 1);
            return E_TIMEOUT;
        }
        scan_streams(h, now_ms);
        return 0;
    }
    if (now_ms < c->since_ms + l->idle_ms) {
        return 0;
    }
    if (wire_blocked(&c->wire)) {
        return CONN_END; /* not even a GOAWAY would get out */
    }
    h2_fail(h, NGHTTP2_NO_ERROR);
    return CONN_END;
}

static uint64_t h2_idle_ms(const struct conn *c)
{
    return c->h2->nstreams == 0 ? c->since_ms : UINT64_MAX;
}

void h2_shed(struct exchange *x)
{
    x->stream->doom = H2_SHED;
    x->conn->ops->wake(x);
    conn_kick(x->conn);
}

static void h2_wake(struct exchange *x)
{
    if (!list_linked(&x->stream->woken)) {
        list_push_back(&x->conn->h2->woken, &x->stream->woken);
    }
}

static const struct conn_ops h2_ops = {.drive = h2_drive,
                                       .due = h2_due,
                                       .expire = h2_expire,
                                       .idle_ms = h2_idle_ms,
                                       .drain = h2_drain,
                                       .wake = h2_wake,
                                       .close = h2_close};
