/* h2.c - the life of an HTTP/2 connection: opening, incoming frames, turns, deadlines, closing.
 *
 * h2_start() sends our SETTINGS. The peer must send its preface and its SETTINGS first; after that
 * the connection is open. Each turn of h2_drive() reads frames, checks them by RFC 9113 and passes
 * them on. Heads and bodies go to h2_request.c, which makes streams and exchanges of them. Then
 * streams with something to send are answered, and bodies are sent in turns (h2_answer.c). A turn
 * has a budget of bytes, so that other connections get theirs.
 *
 * A stream is freed when both sides have ended it or either has reset it. Every second the streams
 * are checked: one whose peer gives no window, reads too slowly or sends too slowly is reset. A
 * peer that floods us with resets, useless frames or control frames loses the connection
 * (ENHANCE_YOUR_CALM).
 *
 * To close, we send a GOAWAY that names no last stream, and NOTICE_MS later one that names it. When
 * its streams have ended, the connection lingers (conn.c). An error sends one GOAWAY with the code
 * and ends the connection. h2.h draws the states.
 *
 * threads  the connection's loop
 */
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
    BLOCK_PIECES_MAX = 8,
    SETTINGS_MAX = 32, /* in one frame: each window of it would be carried to each stream */
    WINDOW_MAX = 0x7fffffff,
    PRIORITY_BYTES = 5,
    FRAME_LONGEST = 0xffffff,
};

static const struct conn_ops h2_ops;

/* --- states ----------------------------------------------------------------------------------- */

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

static void opening_becomes(struct h2 *h, enum h2_opening to)
{
    h->opening = state_step(&h2_openings, h->opening, to);
}

static void closing_becomes(struct h2 *h, enum h2_closing to)
{
    h->closing = state_step(&h2_closings, h->closing, to);
}

/* --- limits ----------------------------------------------------------------------------------- */

static bool take_bucket_token(struct bucket *b, uint64_t now_ms, uint32_t burst, uint32_t per_s)
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
    count(&h->conn->http_loop->counters.limited, 1);
    h2_fail(h, NGHTTP2_ENHANCE_YOUR_CALM);
}

static void note_useless(struct h2 *h)
{
    if (!take_bucket_token(&h->useless, h->conn->http_loop->loop->now_ms, USELESS_BURST,
                           USELESS_PER_S)) {
        h2_calm(h);
    }
}

/* One was received, or the peer caused it. */
static void note_reset(struct h2 *h)
{
    const struct http_limits *l = h->conn->http_loop->limits;

    if (!take_bucket_token(&h->resets, h->conn->http_loop->loop->now_ms, l->reset_burst,
                           l->resets_per_s)) {
        h2_calm(h);
    }
}

static bool floods(const struct h2 *h)
{
    return h->conn->wire.bytes_in / 8 > h->useful_bytes + SLACK_BYTES || h->queued > OUTBOUND_MAX;
}

/* --- what is written beside answers ----------------------------------------------------------- */

static void put_be32(char *to, uint32_t v)
{
    to[0] = (char)(v >> 24);
    to[1] = (char)(v >> 16);
    to[2] = (char)(v >> 8);
    to[3] = (char)v;
}

void h2_put(struct h2 *h, uint8_t type, uint8_t flags, uint32_t stream, struct slice payload)
{
    struct wire *w = &h->conn->wire;
    char *to;

    if (h->closing == H2_OVER) {
        return; /* the peer has our last word */
    }
    to = wire_reserve(w, FRAME_HEAD_BYTES + payload.n);
    to = h2_frame_head(to, payload.n, type, flags, stream);
    if (payload.n != 0) {
        memcpy(to, payload.p, payload.n);
    }
    wire_commit(w, FRAME_HEAD_BYTES + payload.n);
    h->queued += wire_blocked(w);
}

static void put_h2_frame_number(struct h2 *h, uint8_t type, uint32_t stream, uint32_t v)
{
    char payload[4];

    put_be32(payload, v);
    h2_put(h, type, 0, stream, slice_of(payload, sizeof payload));
}

static void say_settings(struct h2 *h)
{
    const struct http_limits *l = h->conn->http_loop->limits;
    const uint32_t ours[][2] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, l->streams},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, l->header_bytes},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    char payload[6 * ARRAY_LEN(ours)];

    for (size_t i = 0; i < ARRAY_LEN(ours); i++) {
        payload[6 * i] = 0;
        payload[6 * i + 1] = (char)ours[i][0];
        put_be32(payload + 6 * i + 2, ours[i][1]);
    }
    h2_put(h, NGHTTP2_SETTINGS, 0, 0, slice_of(payload, sizeof payload));
    put_h2_frame_number(h, NGHTTP2_WINDOW_UPDATE, 0, CONNECTION_WINDOW - WINDOW_USUAL);
}

static void say_goaway(struct h2 *h, uint32_t last, uint32_t code)
{
    char payload[8];

    put_be32(payload, last);
    put_be32(payload + 4, code);
    h2_put(h, NGHTTP2_GOAWAY, 0, 0, slice_of(payload, sizeof payload));
}

void h2_fail(struct h2 *h, uint32_t code)
{
    if (h->closing == H2_OVER) {
        return;
    }
    if (code != NGHTTP2_NO_ERROR) {
        count(&h->conn->http_loop->counters.protocol_errors, 1);
    }
    say_goaway(h, h->last_stream, code);
    closing_becomes(h, H2_OVER);
}

/* Of these the peer is the cause: "made you reset". */
static bool is_its_fault(uint32_t code)
{
    return code == NGHTTP2_PROTOCOL_ERROR || code == NGHTTP2_FLOW_CONTROL_ERROR ||
           code == NGHTTP2_STREAM_CLOSED || code == NGHTTP2_FRAME_SIZE_ERROR ||
           code == NGHTTP2_REFUSED_STREAM;
}

void h2_refuse(struct h2 *h, uint32_t stream, uint32_t code)
{
    put_h2_frame_number(h, NGHTTP2_RST_STREAM, stream, code);
    if (is_its_fault(code)) {
        note_reset(h);
    }
}

static void say_closed(struct h2 *h, uint32_t stream)
{
    put_h2_frame_number(h, NGHTTP2_RST_STREAM, stream, NGHTTP2_STREAM_CLOSED);
}

void h2_kill(struct h2 *h, struct h2_stream *st, uint32_t code)
{
    h2_refuse(h, st->id, code);
    h2_stream_end(h, st, st->x->answer == ANSWER_SENT);
}

/* --- windows ---------------------------------------------------------------------------------- */

void h2_consume(struct h2 *h, size_t n)
{
    h->owed += (uint32_t)n;
    if (h->owed >= CONNECTION_WINDOW / 2) {
        put_h2_frame_number(h, NGHTTP2_WINDOW_UPDATE, 0, h->owed);
        h->room += h->owed;
        h->owed = 0;
    }
}

void h2_consume_stream(struct h2 *h, struct h2_stream *st, size_t n)
{
    h2_consume(h, n);
    st->owed += (uint32_t)n;
    if (st->owed >= st->granted / 2 && !h2_has_all(st)) {
        put_h2_frame_number(h, NGHTTP2_WINDOW_UPDATE, st->id, st->owed);
        st->room += st->owed;
        st->owed = 0;
    }
}

void h2_widen(struct h2 *h, struct h2_stream *st, uint32_t window)
{
    if (st->granted < window) {
        put_h2_frame_number(h, NGHTTP2_WINDOW_UPDATE, st->id, window - st->granted);
        st->room += window - st->granted;
        st->granted = window;
    }
}

/* --- opening and closing ---------------------------------------------------------------------- */

struct h2_stream *h2_stream(const struct h2 *h, uint32_t id)
{
    struct h2_stream *st = h->slot[id / 2 % STREAM_SLOTS];

    while (st != NULL && st->id != id) {
        st = st->next;
    }
    return st;
}

/* RFC 9113 6.8: first a warning, then, after what was under way in the peer's direction, the last
 * stream. */
static void h2_drain(struct conn *c)
{
    if (c->h2->closing == H2_SERVING) { /* 6.8: a second warning would name more than was named */
        closing_becomes(c->h2, H2_WARNING);
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
    h->scanned_ms = c->http_loop->loop->now_ms;
    h->window = h->first_window = WINDOW_USUAL;
    h->room = CONNECTION_WINDOW;
    h->frame_max = FRAME_USUAL;
    hpack_init(&h->heads);
    CHECK(nghttp2_hd_inflate_new(&h->inflater) == 0);
    say_settings(h);
    sock_short_queue(c->wire.fd);
    c->h2 = h;
    conn_become(c, CONN_HTTP2, &h2_ops);
    conn_restart(c);
    count(&c->http_loop->counters.h2, 1);
    if (listener_retired(c->listener)) {
        h2_drain(c);
    }
    return 0;
}

/* It is closed, and the peer may not know yet: what it still sends there is no error. */
static void note_cut(struct h2 *h, uint32_t stream)
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
        note_cut(h, st->id);
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
        closing_becomes(h, H2_OVER);
    }
    while (!list_empty(&h->streams)) {
        h2_stream_end(h, LIST_ITEM(h->streams.next, struct h2_stream, node), false);
    }
    nghttp2_hd_inflate_del(h->inflater);
    hpack_fini(&h->heads);
    free(h);
    c->h2 = NULL;
    count(&c->http_loop->counters.h2, (uint64_t)-1);
}

/* --- frames that come, taken apart and judged (RFC 9113 4 to 6)
 * -----------------------------------------------------------
 *
 * Frames of an unknown kind are skipped whole. DATA is handed on as it comes; other frames wait
 * until they are complete, which the peer's bound of 16 KiB allows.
 */

struct frame {
    uint8_t type, flags;
    uint32_t stream;
    const uint8_t *p;
    size_t n; /* of the payload */
};

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static bool is_idle(const struct h2 *h, uint32_t stream)
{
    return stream > h->opened || stream % 2 == 0;
}

/* --- windows ---------------------------------------------------------------------------------- */

static void take_window(struct h2 *h, const struct frame *f)
{
    struct h2_stream *st = h2_stream(h, f->stream);
    uint32_t n;

    if (f->n != 4) {
        h2_fail(h, NGHTTP2_FRAME_SIZE_ERROR);
        return;
    }
    n = be32(f->p) & WINDOW_MAX;
    if (f->stream == 0) {
        h->window += n;
        if (n == 0 || h->window > WINDOW_MAX) {
            h2_fail(h, n == 0 ? NGHTTP2_PROTOCOL_ERROR : NGHTTP2_FLOW_CONTROL_ERROR);
        }
    } else if (st == NULL) {
        if (is_idle(h, f->stream)) {
            h2_fail(h, NGHTTP2_PROTOCOL_ERROR);
        }
    } else if (n == 0) {
        h2_kill(h, st, NGHTTP2_PROTOCOL_ERROR);
    } else {
        st->window += n;
        if (st->window > WINDOW_MAX) {
            h2_kill(h, st, NGHTTP2_FLOW_CONTROL_ERROR);
        } else {
            h2_resume(h, st);
        }
    }
}

/* --- settings --------------------------------------------------------------------------------- */

static void set_first_window(struct h2 *h, uint32_t window)
{
    int64_t more = (int64_t)window - h->first_window;

    if (window > WINDOW_MAX) {
        h2_fail(h, NGHTTP2_FLOW_CONTROL_ERROR);
        return;
    }
    h->first_window = window;
    LIST_EACH (&h->streams, n) {
        struct h2_stream *st = LIST_ITEM(n, struct h2_stream, node);
        st->window += more;
        if (st->window > WINDOW_MAX) {
            h2_fail(h, NGHTTP2_FLOW_CONTROL_ERROR);
            return;
        }
        h2_resume(h, st);
    }
}

static void set_one(struct h2 *h, unsigned id, uint32_t v)
{
    switch (id) {
    case NGHTTP2_SETTINGS_HEADER_TABLE_SIZE:
        hpack_limit(&h->heads, v);
        h->said.number = 0; /* entries may have gone */
        break;
    case NGHTTP2_SETTINGS_ENABLE_PUSH:
    case NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES:
        if (v > 1) {
            h2_fail(h, NGHTTP2_PROTOCOL_ERROR);
        }
        break;
    case NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE:
        set_first_window(h, v);
        break;
    case NGHTTP2_SETTINGS_MAX_FRAME_SIZE:
        if (v < FRAME_USUAL || v > FRAME_LONGEST) {
            h2_fail(h, NGHTTP2_PROTOCOL_ERROR);
        }
        h->frame_max = v;
        break;
    default: /* those that bind pushes, and those that nobody knows */
        break;
    }
}

static void take_settings(struct h2 *h, const struct frame *f)
{
    bool ack = (f->flags & NGHTTP2_FLAG_ACK) != 0;

    if (f->stream != 0) {
        h2_fail(h, NGHTTP2_PROTOCOL_ERROR);
        return;
    }
    if (ack ? f->n != 0 : f->n % 6 != 0) {
        h2_fail(h, NGHTTP2_FRAME_SIZE_ERROR);
        return;
    }
    if (f->n > (size_t)6 * SETTINGS_MAX) {
        h2_calm(h);
        return;
    }
    for (size_t i = 0; i < f->n && h->closing != H2_OVER; i += 6) {
        set_one(h, (unsigned)f->p[i] << 8 | f->p[i + 1], be32(f->p + i + 2));
    }
    if (!ack) {
        h2_put(h, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, SLICE_NONE);
        if (h->opening == H2_AWAITS_SETTINGS) {
            opening_becomes(h, H2_OPENED);
        }
    }
    note_useless(h);
}

/* --- heads ------------------------------------------------------------------------------------ */

/* Streams that the peer passed over are closed from here on (5.1.1). */
static void note_opened(struct h2 *h, uint32_t stream)
{
    uint32_t passed = (stream - h->opened) / 2;

    h->used = passed < USED_BITS ? h->used << passed | 1 : 1;
    h->opened = stream;
}

/* False also when that is too long ago to be known. */
static bool was_used(const struct h2 *h, uint32_t stream)
{
    uint32_t ago = (h->opened - stream) / 2;

    return ago < USED_BITS && (h->used >> ago & 1) != 0;
}

/* We closed it before the peer had ended it: what the peer sent before it knew is no error
 * (5.1). */
static bool was_cut(const struct h2 *h, uint32_t stream)
{
    for (size_t i = 0; i < CUT_STREAMS; i++) {
        if (h->cut[i] == stream) {
            return true;
        }
    }
    return false;
}

/* A head on a stream that is closed. One that was under way when we closed the stream is read, as
 * later ones refer to it, and forgotten. */
static void take_late_head(struct h2 *h, uint32_t stream)
{
    if (!was_cut(h, stream)) {
        h2_fail(h, was_used(h, stream) ? NGHTTP2_STREAM_CLOSED : NGHTTP2_PROTOCOL_ERROR);
    }
}

/* 6.1: DATA on a stream that the peer has ended or reset. Also where we cut so many streams since
 * then that this one is not known any more: so it is not counted among the resets that the peer
 * caused, and said once. */
static void take_late_data(struct h2 *h, uint32_t stream)
{
    if (!was_cut(h, stream)) {
        say_closed(h, stream);
        note_cut(h, stream);
        note_useless(h);
    }
}

static void open_stream(struct h2 *h, const struct frame *f, bool ends)
{
    struct h2_stream *st = h2_stream(h, f->stream);

    h->block.stream = f->stream;
    h->block.pieces = 0;
    h->block.bytes = 0;
    h->block.ends = ends;
    h->block.trailer = st != NULL;
    h->block.refused = false;
    if (st != NULL) {
        if (h2_has_all(st)) {
            h2_fail(h, NGHTTP2_STREAM_CLOSED);
        }
        st->malformed =
            st->malformed || !ends; /* 8.1: a second head is the last thing of a request */
        return;
    }
    if (f->stream <= h->opened) {
        take_late_head(h, f->stream);
        return;
    }
    note_opened(h, f->stream);
    if (h->closing == H2_LAST_NAMED) {
        note_cut(h, f->stream);
        return; /* 6.8: above the stream that we named; what follows on it is nothing either */
    }
    h->last_stream = f->stream;
    if (h->nstreams >= h->conn->http_loop->limits->streams) {
        h->block.refused = true;
        if (!ends) {
            note_cut(h, f->stream);
        }
    } else {
        h2_request(h, f->stream);
    }
}

static void take_frame_head(struct h2 *h, const struct frame *f)
{
    const uint8_t *p = f->p;
    size_t n = f->n;
    size_t padding = 0;

    if (f->stream % 2 == 0) {
        h2_fail(h, NGHTTP2_PROTOCOL_ERROR);
        return;
    }
    if ((f->flags & NGHTTP2_FLAG_PADDED) != 0 && n > 0) {
        padding = *p++;
        n--;
    }
    if ((f->flags & NGHTTP2_FLAG_PRIORITY) != 0 && n >= 5) {
        p += 5;
        n -= 5;
    } else if ((f->flags & NGHTTP2_FLAG_PRIORITY) != 0) {
        h2_fail(h, NGHTTP2_FRAME_SIZE_ERROR);
        return;
    }
    if (padding > n) {
        h2_fail(h, NGHTTP2_PROTOCOL_ERROR);
        return;
    }
    open_stream(h, f, (f->flags & NGHTTP2_FLAG_END_STREAM) != 0);
    if (h->closing == H2_OVER) {
        return;
    }
    if (h->head_begun_ms == 0) {
        h->head_begun_ms = h->conn->http_loop->loop->now_ms;
    }
    h2_head_piece(h, (const char *)p, n - padding, (f->flags & NGHTTP2_FLAG_END_HEADERS) != 0);
}

static void take_continuation(struct h2 *h, const struct frame *f)
{
    if (h->block.stream == 0) {
        h2_fail(h, NGHTTP2_PROTOCOL_ERROR);
    } else if (++h->block.pieces > BLOCK_PIECES_MAX) {
        h2_calm(h);
    } else {
        h2_head_piece(h, (const char *)f->p, f->n, (f->flags & NGHTTP2_FLAG_END_HEADERS) != 0);
    }
}

/* --- bodies ----------------------------------------------------------------------------------- */

static void end_data(struct h2 *h)
{
    struct h2_stream *st = h2_stream(h, h->data.stream);
    bool ends = h->data.ends;

    h->data.stream = 0;
    if (ends && st != NULL) {
        h2_body_end(h, st);
    }
}

/* The head of a DATA frame; its payload is taken as it comes. */
static size_t begin_data(struct h2 *h, const struct frame *f, size_t have)
{
    bool padded = (f->flags & NGHTTP2_FLAG_PADDED) != 0;
    size_t padding = padded && f->n > 0 && have > 0 ? (size_t)f->p[0] : 0;
    struct h2_stream *st = h2_stream(h, f->stream);

    if (padded && f->n > 0 && have == 0) {
        return 0;
    }
    if (is_idle(h, f->stream) || (padded && padding >= f->n)) {
        h2_fail(h, NGHTTP2_PROTOCOL_ERROR);
    } else if (st != NULL && h2_has_all(st)) {
        h2_fail(h, NGHTTP2_STREAM_CLOSED);
    }
    h->room -= (int64_t)f->n;
    if (h->room < 0) {
        h2_fail(h, NGHTTP2_FLOW_CONTROL_ERROR);
    }
    if (h->closing == H2_OVER) {
        return FRAME_HEAD_BYTES;
    }
    h->data.stream = f->stream;
    h->data.padding = padding;
    h->data.left = f->n - padding - padded;
    h->data.ends = (f->flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (f->n == 0 && !h->data.ends) {
        note_useless(h);
    }
    if (st == NULL) {
        take_late_data(h, f->stream);
        h2_consume(h, padding + padded);
    } else if (st->room < (int64_t)f->n) {
        h2_consume(h, padding + padded);
        h2_kill(h, st, NGHTTP2_FLOW_CONTROL_ERROR);
    } else {
        st->room -= (int64_t)f->n;
        h2_consume_stream(h, st, padding + padded);
    }
    if (h->data.left == 0 && padding == 0) {
        end_data(h);
    }
    return FRAME_HEAD_BYTES + (size_t)padded;
}

static size_t take_data(struct h2 *h, const char *p, size_t n)
{
    size_t part = n < h->data.left ? n : h->data.left;
    size_t skip = min_u64(n - part, h->data.padding);
    struct h2_stream *st = h2_stream(h, h->data.stream);

    h->data.left -= part;
    h->data.padding -= skip;
    if (part != 0) {
        h->useful_bytes += part;
        if (st != NULL) {
            h2_body(h, st, slice_of(p, part));
        } else {
            h2_consume(h, part);
        }
    }
    if (h->data.left == 0 && h->data.padding == 0) {
        end_data(h);
    }
    return part + skip;
}

/* --- the others ------------------------------------------------------------------------------- */

static void take_reset(struct h2 *h, const struct frame *f)
{
    struct h2_stream *st = h2_stream(h, f->stream);

    if (f->n != 4) {
        h2_fail(h, NGHTTP2_FRAME_SIZE_ERROR);
    } else if (is_idle(h, f->stream)) {
        h2_fail(h, NGHTTP2_PROTOCOL_ERROR);
    } else {
        note_reset(h);
        if (st != NULL) {
            h2_stream_becomes(st, H2_STREAM_CLOSED); /* nothing may follow on it */
            h2_stream_end(h, st, st->x->answer == ANSWER_SENT);
        }
    }
}

static void take_ping(struct h2 *h, const struct frame *f)
{
    if (f->stream != 0 || f->n != 8) {
        h2_fail(h, f->stream != 0 ? NGHTTP2_PROTOCOL_ERROR : NGHTTP2_FRAME_SIZE_ERROR);
        return;
    }
    if ((f->flags & NGHTTP2_FLAG_ACK) == 0) {
        h2_put(h, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, slice_of(f->p, f->n));
    }
    note_useless(h);
}

static void take_goaway(struct h2 *h, const struct frame *f)
{
    if (f->stream != 0 || f->n < 8) {
        h2_fail(h, f->stream != 0 ? NGHTTP2_PROTOCOL_ERROR : NGHTTP2_FRAME_SIZE_ERROR);
        return;
    }
    h->peer_leaves = true;
    note_useless(h);
}

/* 6.3: a wrong length is an error of the stream. An idle stream cannot be reset, so there it is one
 * of the connection. */
static void take_odd_priority(struct h2 *h, uint32_t stream)
{
    struct h2_stream *st = h2_stream(h, stream);

    if (st != NULL) {
        h2_kill(h, st, NGHTTP2_FRAME_SIZE_ERROR);
    } else if (is_idle(h, stream)) {
        h2_fail(h, NGHTTP2_FRAME_SIZE_ERROR);
    } else {
        h2_refuse(h, stream, NGHTTP2_FRAME_SIZE_ERROR);
    }
}

/* 5.3.2: the priority itself is not heeded. */
static void take_priority(struct h2 *h, const struct frame *f)
{
    if (f->stream == 0) {
        h2_fail(h, NGHTTP2_PROTOCOL_ERROR);
    } else if (f->n != PRIORITY_BYTES) {
        take_odd_priority(h, f->stream);
    } else {
        note_useless(h);
    }
}

static void take_frame(struct h2 *h, const struct frame *f)
{
    switch (f->type) {
    case NGHTTP2_HEADERS:
        take_frame_head(h, f);
        break;
    case NGHTTP2_CONTINUATION:
        take_continuation(h, f);
        break;
    case NGHTTP2_PRIORITY:
        take_priority(h, f);
        break;
    case NGHTTP2_RST_STREAM:
        take_reset(h, f);
        break;
    case NGHTTP2_SETTINGS:
        take_settings(h, f);
        break;
    case NGHTTP2_PUSH_PROMISE:
        h2_fail(h, NGHTTP2_PROTOCOL_ERROR);
        break;
    case NGHTTP2_PING:
        take_ping(h, f);
        break;
    case NGHTTP2_GOAWAY:
        take_goaway(h, f);
        break;
    case NGHTTP2_WINDOW_UPDATE: /* needed, and cheap; floods() weighs them */
        take_window(h, f);
        break;
    default: /* 5.5: extensions; floods() weighs them too */
        break;
    }
}

static bool in_its_place(const struct h2 *h, const struct frame *f)
{
    if (h->opening != H2_OPENED &&
        (f->type != NGHTTP2_SETTINGS || (f->flags & NGHTTP2_FLAG_ACK) != 0)) {
        return false; /* 3.4 */
    }
    return h->block.stream == 0 ||
           (f->type == NGHTTP2_CONTINUATION && f->stream == h->block.stream); /* 6.10 */
}

/* 0: more is needed. */
static size_t next_frame(struct h2 *h, const char *p, size_t n)
{
    const uint8_t *b = (const uint8_t *)p;
    struct frame f;

    if (n < FRAME_HEAD_BYTES) {
        return 0;
    }
    f = (struct frame){.n = (size_t)b[0] << 16 | (size_t)b[1] << 8 | b[2],
                       .type = b[3],
                       .flags = b[4],
                       .stream = be32(b + 5) & WINDOW_MAX,
                       .p = b + FRAME_HEAD_BYTES};
    if (f.n > FRAME_USUAL || !in_its_place(h, &f)) {
        h2_fail(h, f.n > FRAME_USUAL ? NGHTTP2_FRAME_SIZE_ERROR : NGHTTP2_PROTOCOL_ERROR);
        return n;
    }
    if (f.type == NGHTTP2_DATA) {
        return begin_data(h, &f, n - FRAME_HEAD_BYTES);
    }
    if (n - FRAME_HEAD_BYTES < f.n) {
        if (f.type == NGHTTP2_HEADERS && h->head_begun_ms == 0) {
            h->head_begun_ms = h->conn->http_loop->loop->now_ms;
        }
        return 0;
    }
    take_frame(h, &f);
    return FRAME_HEAD_BYTES + f.n;
}

static size_t read_h2_preface(struct h2 *h, const char *p, size_t n)
{
    static const char preface[] = H2_PREFACE;
    size_t have = n < sizeof preface - 1 ? n : sizeof preface - 1;

    if (memcmp(p, preface, have) != 0) {
        h2_fail(h, NGHTTP2_PROTOCOL_ERROR); /* 3.4 */
        return 0;
    }
    if (have < sizeof preface - 1) {
        return 0;
    }
    opening_becomes(h, H2_AWAITS_SETTINGS);
    return have;
}

/* Takes whole frames, and DATA as it comes: how many bytes it used. */
static size_t take_bytes(struct h2 *h, const char *p, size_t n)
{
    size_t done = 0;
    size_t used = 1;

    while (used != 0 && done < n && h->closing != H2_OVER) {
        used = h->opening == H2_AWAITS_PREFACE ? read_h2_preface(h, p + done, n - done)
               : h->data.stream != 0           ? take_data(h, p + done, n - done)
                                               : next_frame(h, p + done, n - done);
        done += used;
    }
    return h->closing == H2_OVER ? n : done;
}

/* --- driving ---------------------------------------------------------------------------------- */

/* 1: bytes arrived; 0: none now; the end of the connection is reported as E_CANCELLED. */
static int receive_h2_frames(struct h2 *h)
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
    conn_consume(c, take_bytes(h, c->in.p, c->in.n));
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
            count(&h->conn->http_loop->counters.limited, 1);
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
        closing_becomes(h, H2_WARNED);
        say_goaway(h, LAST_STREAM, NGHTTP2_NO_ERROR);
        h->goaway_ms = c->http_loop->loop->now_ms + NOTICE_MS;
    }
    for (int turn = 0; got > 0; turn++) {
        if (turn == DRIVE_TURNS) {
            conn_yield(c);
            break;
        }
        h->queued = wire_blocked(&c->wire) && wire_flush(&c->wire, false) != 0 ? h->queued : 0;
        http_loop_tick(c->http_loop);
        got = receive_h2_frames(h);
        if (h->closing == H2_OVER) {
            break;
        }
        http_loop_tick(c->http_loop);
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

/* --- time ------------------------------------------------------------------------------------- */

static uint64_t h2_due(const struct conn *c)
{
    const struct http_limits *l = c->http_loop->limits;
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

/* Who has a window and waits for its turn is as idle as all of them: a slow peer may well need
 * minutes for a round of many. */
static uint64_t moved_ms(const struct h2 *h, const struct h2_stream *st)
{
    return list_linked(&st->sending) ? max_u64(st->x->moved_ms, h->sent_ms) : st->x->moved_ms;
}

/* A peer that gives no window for an answer, trickles its upload, or has not ended a body so long
 * after its answer, loses that stream. */
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
    const struct http_limits *l = h->conn->http_loop->limits;

    h->scanned_ms = now_ms;
    LIST_EACH (&h->streams, n) {
        struct h2_stream *st = LIST_ITEM(n, struct h2_stream, node);
        bool idle = now_ms - moved_ms(h, st) >= l->stall_ms;
        bool starved = idle && is_sending(st);
        bool left = idle && st->state == H2_STREAM_HALF_CLOSED_LOCAL;
        bool slow =
            reader_rate_look(&st->taken, &l->reader, now_ms, is_held(h, st), st->x->body_bytes);
        if (starved || left || slow || exchange_too_slow(st->x, now_ms)) {
            count(&h->conn->http_loop->counters.limited, 1);
            h2_kill(h, st, NGHTTP2_CANCEL);
        }
    }
}

static int h2_expire(struct conn *c)
{
    const struct http_limits *l = c->http_loop->limits;
    struct h2 *h = c->h2;
    uint64_t now_ms = c->http_loop->loop->now_ms;

    if (wire_blocked(&c->wire) && now_ms >= c->out_ms + l->stall_ms) {
        count(&c->http_loop->counters.limited, 1);
        return E_TIMEOUT;
    }
    if (h->head_begun_ms != 0 && now_ms >= h->head_begun_ms + l->header_ms) {
        h2_calm(h);
        return CONN_END;
    }
    if (h->closing == H2_WARNED && now_ms >= h->goaway_ms) {
        closing_becomes(h, H2_LAST_NAMED);
        say_goaway(h, h->last_stream, NGHTTP2_NO_ERROR);
        return 0;
    }
    if (h->nstreams > 0) {
        if (reader_rate_look(&c->taken, &l->reader, now_ms, all_are_held(h), c->answered_bytes)) {
            count(&c->http_loop->counters.limited, 1);
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
