/* h2_request.c - requests on an HTTP/2 connection: heads and bodies become exchanges. */
#include "server/http/h2.h"

enum {
    STREAM_WINDOW = 1024 * 1024,
    FIELDS_FIRST = 16,
    FIELD_OVERHEAD_BYTES = 32,
    BLOCK_FACTOR = 8
};

/* --- heads ------------------------------------------------------------------------------------------------------------- */

struct exchange *h2_request(struct h2 *h, uint32_t id)
{
    struct exchange *x = exchange_new(h->conn);
    struct exchange **slot = &h->slot[id / 2 % STREAM_SLOTS];

    x->stream_id = id;
    x->held = BUF_INIT(STREAM_WINDOW + 64 * 1024);
    x->req.version = HTTP_2;
    x->announced = LENGTH_UNKNOWN;
    x->window = h->first_window;
    x->room = x->granted = WINDOW_USUAL;
    x->next = *slot;
    *slot = x;
    list_push_back(&h->streams, &x->node);
    h->nstreams++;
    return x;
}

static void add_field(struct exchange *x, struct slice name, struct slice value)
{
    if ((x->req.nfields & (x->req.nfields - 1)) == 0 &&
        (x->req.nfields == 0 || x->req.nfields >= FIELDS_FIRST)) {
        size_t room = x->req.nfields == 0 ? FIELDS_FIRST : 2 * x->req.nfields;
        struct http_field *more = arena_alloc(&x->arena, room * sizeof *more);
        if (x->req.nfields != 0) {
            memcpy(more, x->fields, x->req.nfields * sizeof *more);
        }
        x->fields = more;
    }
    x->fields[x->req.nfields++] =
        (struct http_field){arena_copy(&x->arena, name), arena_copy(&x->arena, value)};
}

static void take_pseudo(struct exchange *x, struct slice name, struct slice value)
{
    if (slice_eq(name, SLICE(":method"))) {
        x->req.method_text = arena_copy(&x->arena, value);
    } else if (slice_eq(name, SLICE(":path"))) {
        x->req.target = arena_copy(&x->arena, value);
    } else if (slice_eq(name, SLICE(":authority"))) {
        x->authority = arena_copy(&x->arena, value);
    }
}

static void take_field(struct exchange *x, struct slice name, struct slice value)
{
    if (name.p[0] == ':') {
        take_pseudo(x, name, value);
    } else if (slice_eq(name, SLICE("host"))) {
        x->req.host = arena_copy(&x->arena, value);
    } else if (slice_eq(name, SLICE("content-length"))) {
        x->req.content_length = x->announced;
    } else if (slice_eq(name, SLICE("expect"))) {
        x->expect_continue = slice_ieq(value, SLICE("100-continue"));
    } else if (!slice_eq(name, SLICE("te")) && !slice_eq(name, SLICE("trailer"))) {
        add_field(x, name, value);
    }
}

static void hear_field(struct h2 *h, struct exchange *x, struct slice name, struct slice value)
{
    const struct http_limits *l = h->conn->lane->limits;

    x->header_bytes += name.n + value.n + FIELD_OVERHEAD_BYTES;
    if (x->header_bytes > l->header_bytes || x->req.nfields >= l->header_fields) {
        x->refuse_status = 431;
    }
    if (x->malformed || !h2_field_allowed(x, name, value, h->block.trailer)) {
        x->malformed = true;
    } else if (!h->block.trailer && x->refuse_status == 0) { /* a trailer nobody sees */
        take_field(x, name, slice_trim(value));
    }
}

static int judge_head(struct exchange *x)
{
    const struct http_limits *l = x->conn->lane->limits;

    if (x->refuse_status != 0) {
        return x->refuse_status;
    }
    if (x->req.target.n > l->uri_bytes) {
        return 414;
    }
    if (x->authority.p != NULL) {
        if (x->req.host.p != NULL && !slice_ieq(x->authority, x->req.host)) {
            return 400;
        }
        x->req.host = x->authority;
    }
    if (slice_eqs(x->req.target, "*")) {
        return 501;
    }
    return x->req.target.n > 0 && x->req.target.p[0] == '/' && h1_valid_target(x->req.target) &&
                   h1_valid_host(x->req.host)
               ? 0
               : 400;
}

static void begin_request(struct h2 *h, struct exchange *x, bool ends)
{
    int status;

    h->useful_bytes += x->header_bytes;
    x->req.fields = x->fields;
    x->req.has_body = !ends;
    x->received_all = ends;
    if (!ends && x->req.content_length == 0) {
        x->req.content_length = LENGTH_UNKNOWN;
    }
    status = judge_head(x);
    if (status != 0) {
        count(&h->conn->lane->counters.protocol_errors, 1);
        exchange_refuse(x, status);
    } else {
        exchange_begin(x);
    }
}

static void end_head(struct h2 *h)
{
    struct exchange *x = h2_stream(h, h->block.stream);
    uint32_t stream = h->block.stream;

    h->block.stream = 0;
    h->head_begun_ms = 0;
    if (h->block.refused) {
        h2_refuse(h, stream, NGHTTP2_REFUSED_STREAM);
    } else if (x != NULL && (x->malformed ||
                             (!h->block.trailer && x->refuse_status == 0 && !h2_head_allowed(x)))) {
        h2_kill(h, x, NGHTTP2_PROTOCOL_ERROR);
    } else if (x != NULL && h->block.trailer) {
        h2_body_end(h, x);
    } else if (x != NULL && h->block.ends && x->announced != LENGTH_UNKNOWN && x->announced != 0) {
        h2_kill(h, x, NGHTTP2_PROTOCOL_ERROR); /* 8.1.1: a body was announced */
    } else if (x != NULL) {
        begin_request(h, x, h->block.ends);
    }
}

/* A block that nobody wants is read like any other: later ones refer to what it puts into the table. */
void h2_head_piece(struct h2 *h, const char *p, size_t n, bool last)
{
    struct exchange *x = h2_stream(h, h->block.stream);
    const uint8_t *at = (const uint8_t *)p;

    for (;;) {
        nghttp2_nv field;
        int flags = 0;
        ssize_t used = nghttp2_hd_inflate_hd2(h->inflater, &field, &flags, at, n, last);
        if (used < 0) {
            h2_fail(h, NGHTTP2_COMPRESSION_ERROR);
            return;
        }
        at += used;
        n -= (size_t)used;
        if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0) {
            h->block.bytes += field.namelen + field.valuelen + FIELD_OVERHEAD_BYTES;
            if (h->block.bytes / BLOCK_FACTOR > h->conn->lane->limits->header_bytes) {
                h2_calm(
                    h); /* 431 is for who errs; this one wants us to unpack a byte to thousands */
                return;
            }
            if (x != NULL) {
                hear_field(h, x, slice_of(field.name, field.namelen),
                           slice_of(field.value, field.valuelen));
            }
        } else if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0) {
            nghttp2_hd_inflate_end_headers(h->inflater);
            end_head(h);
            return;
        } else if (n == 0) {
            return;
        }
    }
}

/* --- bodies -------------------------------------------------------------------------------------------------------------- */

void h2_feed(struct h2 *h, struct exchange *x)
{
    struct buf held;

    if (!x->reading || x->paused || x->end_told) {
        return;
    }
    if (x->expect_continue) {
        x->expect_continue = false;
        if (x->reply == NULL) {
            char block[HPACK_UPDATE_BYTES + HPACK_INT_BYTES];
            char *end = hpack_status(hpack_begin(&h->heads, block), 100);
            h2_put(h, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, x->stream_id,
                   slice_of(block, (size_t)(end - block)));
        }
    }
    if (!x->received_all) {
        h2_widen(h, x, STREAM_WINDOW); /* somebody reads: now the peer may send at full speed */
    }
    if (x->held.n == 0 && !x->received_all) {
        return;
    }
    held = x->held;
    x->held = BUF_INIT(held.max);
    exchange_deliver(x, buf_slice(&held), x->received_all);
    h2_consume_stream(h, x, held.n);
    buf_free(&held);
}

/* Past the bound the peer gets no more window, and its stream an end: but not before the answer has left. */
static void discard(struct h2 *h, struct exchange *x, size_t n)
{
    x->discarded += n;
    if (x->discarded <= h->conn->lane->limits->discard_bytes) {
        h2_consume_stream(h, x, n);
        return;
    }
    h2_consume(h, n);
    if (x->sent_all) {
        x->refused_more = true;
        x->conn->ops->wake(x);
    }
}

void h2_drop_held(struct h2 *h, struct exchange *x)
{
    size_t n = x->held.n;

    if (n != 0) {
        buf_free(&x->held);
        discard(h, x, n);
    }
}

void h2_body(struct h2 *h, struct exchange *x, struct slice bytes)
{
    x->received += bytes.n;
    if (x->announced != LENGTH_UNKNOWN && x->received > x->announced) {
        h2_consume(h, bytes.n);
        h2_kill(h, x, NGHTTP2_PROTOCOL_ERROR);
    } else if (x->reply != NULL && !x->reading) {
        discard(h, x, bytes.n);
    } else if (x->reading && !x->paused && x->held.n == 0) {
        exchange_deliver(x, bytes, false);
        h2_consume_stream(h, x, bytes.n);
    } else if (!exchange_holds(x, x->held.n + bytes.n)) {
        h2_consume(h, bytes.n);
        h2_kill(h, x, NGHTTP2_ENHANCE_YOUR_CALM);
    } else {
        buf_adds(&x->held, bytes); /* bounded by the window that we do not give back */
        if (x->held.rc != 0) {
            h2_consume(h, bytes.n);
            h2_kill(h, x, NGHTTP2_INTERNAL_ERROR);
        }
    }
}

void h2_body_end(struct h2 *h, struct exchange *x)
{
    if (x->announced != LENGTH_UNKNOWN && x->received != x->announced) {
        h2_kill(h, x, NGHTTP2_PROTOCOL_ERROR);
        return;
    }
    x->received_all = true;
    if (x->sent_all) {
        h2_stream_end(h, x, true);
    } else {
        h2_feed(h, x);
    }
}
