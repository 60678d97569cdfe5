/* h2_control.c - what an HTTP/2 connection writes beside answers: settings, windows given back, ends of streams and of itself. */
#include "server/http/h2.h"

static void put_be32(char *to, uint32_t v)
{
    to[0] = (char)(v >> 24);
    to[1] = (char)(v >> 16);
    to[2] = (char)(v >> 8);
    to[3] = (char)v;
}

/* --- writing ------------------------------------------------------------------------------------------------------------- */

char *h2_frame_head(char *to, size_t n, uint8_t type, uint8_t flags, uint32_t stream)
{
    to[0] = (char)(n >> 16);
    to[1] = (char)(n >> 8);
    to[2] = (char)n;
    to[3] = (char)type;
    to[4] = (char)flags;
    put_be32(to + 5, stream);
    return to + FRAME_HEAD_BYTES;
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

static void put_number(struct h2 *h, uint8_t type, uint32_t stream, uint32_t v)
{
    char payload[4];

    put_be32(payload, v);
    h2_put(h, type, 0, stream, slice_of(payload, sizeof payload));
}

void h2_settings(struct h2 *h)
{
    const struct http_limits *l = h->conn->lane->limits;
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
    put_number(h, NGHTTP2_WINDOW_UPDATE, 0, CONNECTION_WINDOW - WINDOW_USUAL);
}

void h2_goaway(struct h2 *h, uint32_t last, uint32_t code)
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
        count(&h->conn->lane->counters.protocol_errors, 1);
    }
    h2_goaway(h, h->last_stream, code);
    h2_closing_becomes(h, H2_OVER);
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
    put_number(h, NGHTTP2_RST_STREAM, stream, code);
    if (is_its_fault(code)) {
        h2_reset(h);
    }
}

void h2_say_closed(struct h2 *h, uint32_t stream)
{
    put_number(h, NGHTTP2_RST_STREAM, stream, NGHTTP2_STREAM_CLOSED);
}

void h2_kill(struct h2 *h, struct h2_stream *st, uint32_t code)
{
    h2_refuse(h, st->id, code);
    h2_stream_end(h, st, st->x->answer == ANSWER_SENT);
}

/* --- windows ------------------------------------------------------------------------------------------------------------- */

void h2_consume(struct h2 *h, size_t n)
{
    h->owed += (uint32_t)n;
    if (h->owed >= CONNECTION_WINDOW / 2) {
        put_number(h, NGHTTP2_WINDOW_UPDATE, 0, h->owed);
        h->room += h->owed;
        h->owed = 0;
    }
}

void h2_consume_stream(struct h2 *h, struct h2_stream *st, size_t n)
{
    h2_consume(h, n);
    st->owed += (uint32_t)n;
    if (st->owed >= st->granted / 2 && !h2_has_all(st)) {
        put_number(h, NGHTTP2_WINDOW_UPDATE, st->id, st->owed);
        st->room += st->owed;
        st->owed = 0;
    }
}

void h2_widen(struct h2 *h, struct h2_stream *st, uint32_t window)
{
    if (st->granted < window) {
        put_number(h, NGHTTP2_WINDOW_UPDATE, st->id, window - st->granted);
        st->room += window - st->granted;
        st->granted = window;
    }
}
