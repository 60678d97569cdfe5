/* h2_frames.c - frames that come on an HTTP/2 connection, taken apart and judged (RFC 9113 4 to 6).
 *
 * Frames of an unknown kind are skipped whole. DATA is handed on as it comes; other frames wait until they are complete, which
 * the peer's bound of 16 KiB allows.
 */
#include "server/http/h2.h"

enum {
    BLOCK_PIECES_MAX = 8,
    SETTINGS_MAX = 32, /* in one frame: each window of it would be carried to each stream */
    WINDOW_MAX = 0x7fffffff,
    PRIORITY_BYTES = 5,
    FRAME_LONGEST = 0xffffff
};

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

/* --- windows ------------------------------------------------------------------------------------------------------------- */

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

/* --- settings ------------------------------------------------------------------------------------------------------------ */

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

static void set(struct h2 *h, unsigned id, uint32_t v)
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
        set(h, (unsigned)f->p[i] << 8 | f->p[i + 1], be32(f->p + i + 2));
    }
    if (!ack) {
        h2_put(h, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, SLICE_NONE);
        if (h->opening == H2_AWAITS_SETTINGS) {
            h2_opening_becomes(h, H2_OPENED);
        }
    }
    h2_useless(h);
}

/* --- heads ----------------------------------------------------------------------------------------------------------------- */

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

/* We closed it before the peer had ended it: what the peer sent before it knew is no error (5.1). */
static bool was_cut(const struct h2 *h, uint32_t stream)
{
    for (size_t i = 0; i < CUT_STREAMS; i++) {
        if (h->cut[i] == stream) {
            return true;
        }
    }
    return false;
}

/* A head on a stream that is closed. One that was under way when we closed the stream is read, as later ones refer to it, and
 * forgotten. */
static void take_late_head(struct h2 *h, uint32_t stream)
{
    if (!was_cut(h, stream)) {
        h2_fail(h, was_used(h, stream) ? NGHTTP2_STREAM_CLOSED : NGHTTP2_PROTOCOL_ERROR);
    }
}

/* 6.1: DATA on a stream that the peer has ended or reset. Also where we cut so many streams since then that this one is not known
 * any more: so it is not counted among the resets that the peer caused, and said once. */
static void take_late_data(struct h2 *h, uint32_t stream)
{
    if (!was_cut(h, stream)) {
        h2_say_closed(h, stream);
        h2_note_cut(h, stream);
        h2_useless(h);
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
        h2_note_cut(h, f->stream);
        return; /* 6.8: above the stream that we named; what follows on it is nothing either */
    }
    h->last_stream = f->stream;
    if (h->nstreams >= h->conn->lane->limits->streams) {
        h->block.refused = true;
        if (!ends) {
            h2_note_cut(h, f->stream);
        }
    } else {
        h2_request(h, f->stream);
    }
}

static void take_head(struct h2 *h, const struct frame *f)
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
        h->head_begun_ms = h->conn->lane->loop->now_ms;
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

/* --- bodies ---------------------------------------------------------------------------------------------------------------- */

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
        h2_useless(h);
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

/* --- the others -------------------------------------------------------------------------------------------------------------- */

static void take_reset(struct h2 *h, const struct frame *f)
{
    struct h2_stream *st = h2_stream(h, f->stream);

    if (f->n != 4) {
        h2_fail(h, NGHTTP2_FRAME_SIZE_ERROR);
    } else if (is_idle(h, f->stream)) {
        h2_fail(h, NGHTTP2_PROTOCOL_ERROR);
    } else {
        h2_reset(h);
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
    h2_useless(h);
}

static void take_goaway(struct h2 *h, const struct frame *f)
{
    if (f->stream != 0 || f->n < 8) {
        h2_fail(h, f->stream != 0 ? NGHTTP2_PROTOCOL_ERROR : NGHTTP2_FRAME_SIZE_ERROR);
        return;
    }
    h->peer_leaves = true;
    h2_useless(h);
}

/* 6.3: a wrong length is an error of the stream. An idle stream cannot be reset, so there it is one of the connection. */
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
        h2_useless(h);
    }
}

static void take_frame(struct h2 *h, const struct frame *f)
{
    switch (f->type) {
    case NGHTTP2_HEADERS:
        take_head(h, f);
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
            h->head_begun_ms = h->conn->lane->loop->now_ms;
        }
        return 0;
    }
    take_frame(h, &f);
    return FRAME_HEAD_BYTES + f.n;
}

static size_t greet(struct h2 *h, const char *p, size_t n)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    size_t have = n < sizeof preface - 1 ? n : sizeof preface - 1;

    if (memcmp(p, preface, have) != 0) {
        h2_fail(h, NGHTTP2_PROTOCOL_ERROR); /* 3.4 */
        return 0;
    }
    if (have < sizeof preface - 1) {
        return 0;
    }
    h2_opening_becomes(h, H2_AWAITS_SETTINGS);
    return have;
}

size_t h2_take(struct h2 *h, const char *p, size_t n)
{
    size_t done = 0;
    size_t used = 1;

    while (used != 0 && done < n && h->closing != H2_OVER) {
        used = h->opening == H2_AWAITS_PREFACE ? greet(h, p + done, n - done)
               : h->data.stream != 0           ? take_data(h, p + done, n - done)
                                               : next_frame(h, p + done, n - done);
        done += used;
    }
    return h->closing == H2_OVER ? n : done;
}
