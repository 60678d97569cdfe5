/* h2_request.c - requests on an HTTP/2 connection: makes exchanges of heads and bodies. */
#include "server/http/h2.h"

enum {
    STREAM_WINDOW = 1024 * 1024,
    FIELDS_FIRST = 16,
    FIELD_OVERHEAD_BYTES = 32,
    BLOCK_FACTOR = 8
};

/* --- what a head may hold (RFC 9113 8.2, 8.3), field by field ---------------------------------
 *
 * Targets and hosts are judged as over HTTP/1.
 */

enum { /* exchange.pseudo */
       SEEN_METHOD = 1,
       SEEN_SCHEME = 2,
       SEEN_PATH = 4,
       SEEN_AUTHORITY = 8,
       SEEN_HOST = 16,
       SEEN_LENGTH = 32,
       SEEN_FIELD = 64,
       SEEN_CONNECT = 128,
};

static bool is_first_pseudo_field(struct h2_stream *st, unsigned bit, struct slice value)
{
    bool first = (st->pseudo & bit) == 0 && value.n > 0;

    st->pseudo |= (uint8_t)bit;
    return first;
}

static bool pseudo_allowed(struct h2_stream *st, struct slice name, struct slice value)
{
    if ((st->pseudo & SEEN_FIELD) != 0) {
        return false;
    }
    if (slice_eq(name, SLICE(":path"))) {
        return is_first_pseudo_field(st, SEEN_PATH, value);
    }
    if (slice_eq(name, SLICE(":method"))) {
        st->pseudo |= slice_eq(value, SLICE("CONNECT")) ? SEEN_CONNECT : 0;
        return is_first_pseudo_field(st, SEEN_METHOD, value) &&
               nghttp2_check_method((const uint8_t *)value.p, value.n) != 0;
    }
    if (slice_eq(name, SLICE(":scheme"))) {
        return is_first_pseudo_field(st, SEEN_SCHEME, value);
    }
    return slice_eq(name, SLICE(":authority")) && is_first_pseudo_field(st, SEEN_AUTHORITY, value);
}

/* 8.2.2: fields that are about the connection have no place here. */
static bool about_connection(struct slice name, struct slice value)
{
    switch (name.n) {
    case 2:
        return slice_eq(name, SLICE("te")) && !slice_ieq(value, SLICE("trailers"));
    case 7:
        return slice_eq(name, SLICE("upgrade"));
    case 10:
        return slice_eq(name, SLICE("connection")) || slice_eq(name, SLICE("keep-alive"));
    case 16:
        return slice_eq(name, SLICE("proxy-connection"));
    case 17:
        return slice_eq(name, SLICE("transfer-encoding"));
    default:
        return false;
    }
}

static bool field_allowed(struct h2_stream *st, struct slice name, struct slice value, bool trailer)
{
    bool pseudo = name.n > 0 && name.p[0] == ':';

    if (pseudo) { /* their values are judged as those of HTTP/1's first line are */
        return !trailer && pseudo_allowed(st, name, value);
    }
    st->pseudo |= SEEN_FIELD;
    if (nghttp2_check_header_name((const uint8_t *)name.p, name.n) == 0 ||
        nghttp2_check_header_value((const uint8_t *)value.p, value.n) == 0 ||
        about_connection(name, value)) {
        return false;
    }
    if (slice_eq(name, SLICE("host"))) {
        return is_first_pseudo_field(st, SEEN_HOST, value);
    }
    if (slice_eq(name, SLICE("content-length"))) {
        return trailer || (is_first_pseudo_field(st, SEEN_LENGTH, value) &&
                           slice_u64(value, &st->announced) && st->announced != LENGTH_UNKNOWN);
    }
    return true;
}

static bool head_allowed(const struct h2_stream *st)
{
    const unsigned all = SEEN_METHOD | SEEN_SCHEME | SEEN_PATH;

    if ((st->pseudo & SEEN_CONNECT) != 0) {
        return (st->pseudo & (SEEN_SCHEME | SEEN_PATH)) == 0 && (st->pseudo & SEEN_AUTHORITY) != 0;
    }
    return (st->pseudo & all) == all && (st->pseudo & (SEEN_AUTHORITY | SEEN_HOST)) != 0;
}

/* --- heads ------------------------------------------------------------------------------------ */

struct h2_stream *h2_request(struct h2 *h, uint32_t id)
{
    struct exchange *x = exchange_new(h->conn);
    struct h2_stream **slot = &h->slot[id / 2 % STREAM_SLOTS];
    struct h2_stream *st = ARENA_NEW(&x->arena, struct h2_stream);

    x->stream = st;
    x->held = BUF_INIT(STREAM_WINDOW + 64 * 1024);
    x->req.version = HTTP_2;
    *st = (struct h2_stream){.id = id,
                             .x = x,
                             .announced = LENGTH_UNKNOWN,
                             .window = h->first_window,
                             .room = WINDOW_USUAL,
                             .granted = WINDOW_USUAL,
                             .next = *slot};
    *slot = st;
    list_push_back(&h->streams, &st->node);
    h->nstreams++;
    return st;
}

static void add_field(struct h2_stream *st, struct slice name, struct slice value)
{
    struct arena *a = &st->x->arena;
    struct http_req *r = &st->x->req;

    if ((r->nfields & (r->nfields - 1)) == 0 && (r->nfields == 0 || r->nfields >= FIELDS_FIRST)) {
        size_t room = r->nfields == 0 ? FIELDS_FIRST : 2 * r->nfields;
        struct http_field *more = arena_alloc(a, room * sizeof *more);
        if (r->nfields != 0) {
            memcpy(more, st->fields, r->nfields * sizeof *more);
        }
        st->fields = more;
    }
    st->fields[r->nfields++] = (struct http_field){arena_copy(a, name), arena_copy(a, value)};
}

static void take_pseudo(struct h2_stream *st, struct slice name, struct slice value)
{
    if (slice_eq(name, SLICE(":method"))) {
        st->x->req.method_text = arena_copy(&st->x->arena, value);
    } else if (slice_eq(name, SLICE(":path"))) {
        st->x->req.target = arena_copy(&st->x->arena, value);
    } else if (slice_eq(name, SLICE(":authority"))) {
        st->authority = arena_copy(&st->x->arena, value);
    }
}

static void take_field(struct h2_stream *st, struct slice name, struct slice value)
{
    if (name.p[0] == ':') {
        take_pseudo(st, name, value);
    } else if (slice_eq(name, SLICE("host"))) {
        st->x->req.host = arena_copy(&st->x->arena, value);
    } else if (slice_eq(name, SLICE("content-length"))) {
        st->x->req.content_length = st->announced;
    } else if (slice_eq(name, SLICE("expect"))) {
        st->x->expect_continue = slice_ieq(value, SLICE("100-continue"));
    } else if (!slice_eq(name, SLICE("te")) && !slice_eq(name, SLICE("trailer"))) {
        add_field(st, name, value);
    }
}

static void hear_field(struct h2 *h, struct h2_stream *st, struct slice name, struct slice value)
{
    const struct http_limits *l = h->conn->http_loop->limits;

    st->header_bytes += name.n + value.n + FIELD_OVERHEAD_BYTES;
    if (st->header_bytes > l->header_bytes || st->x->req.nfields >= l->header_fields) {
        st->refuse_status = 431;
    }
    if (st->malformed || !field_allowed(st, name, value, h->block.trailer)) {
        st->malformed = true;
    } else if (!h->block.trailer && st->refuse_status == 0) { /* a trailer nobody sees */
        take_field(st, name, slice_trim(value));
    }
}

static int judge_head(const struct h2_stream *st)
{
    const struct http_limits *l = st->x->conn->http_loop->limits;
    struct http_req *r = &st->x->req;

    if (st->refuse_status != 0) {
        return st->refuse_status;
    }
    if (r->target.n > l->uri_bytes) {
        return 414;
    }
    if (st->authority.p != NULL) {
        if (r->host.p != NULL && !slice_ieq(st->authority, r->host)) {
            return 400;
        }
        r->host = st->authority;
    }
    if (slice_eqs(r->target, "*")) {
        return 501;
    }
    return r->target.n > 0 && r->target.p[0] == '/' && h1_valid_target(r->target) &&
                   h1_valid_host(r->host)
               ? 0
               : 400;
}

static void begin_request(struct h2 *h, struct h2_stream *st, bool ends)
{
    struct exchange *x = st->x;
    int status;

    h2_stream_becomes(st, ends ? H2_STREAM_HALF_CLOSED_REMOTE : H2_STREAM_OPEN);
    h->useful_bytes += st->header_bytes;
    x->req.fields = st->fields;
    x->req.has_body = !ends;
    x->arrived = ends;
    if (!ends && x->req.content_length == 0) {
        x->req.content_length = LENGTH_UNKNOWN;
    }
    status = judge_head(st);
    if (status != 0) {
        count(&h->conn->http_loop->counters.protocol_errors, 1);
        exchange_refuse(x, status);
    } else {
        exchange_begin(x);
    }
}

static void end_head(struct h2 *h)
{
    struct h2_stream *st = h2_stream(h, h->block.stream);
    uint32_t stream = h->block.stream;

    h->block.stream = 0;
    h->head_begun_ms = 0;
    if (h->block.refused) {
        h2_refuse(h, stream, NGHTTP2_REFUSED_STREAM);
    } else if (st != NULL && (st->malformed ||
                              (!h->block.trailer && st->refuse_status == 0 && !head_allowed(st)))) {
        h2_kill(h, st, NGHTTP2_PROTOCOL_ERROR);
    } else if (st != NULL && h->block.trailer) {
        h2_body_end(h, st);
    } else if (st != NULL && h->block.ends && st->announced != LENGTH_UNKNOWN &&
               st->announced != 0) {
        h2_kill(h, st, NGHTTP2_PROTOCOL_ERROR); /* 8.1.1: a body was announced */
    } else if (st != NULL) {
        begin_request(h, st, h->block.ends);
    }
}

/* A block that nobody wants is read like any other: later ones refer to what it puts into the
 * table. */
void h2_head_piece(struct h2 *h, const char *p, size_t n, bool last)
{
    struct h2_stream *st = h2_stream(h, h->block.stream);
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
            if (h->block.bytes / BLOCK_FACTOR > h->conn->http_loop->limits->header_bytes) {
                h2_calm(
                    h); /* 431 is for who errs; this one wants us to unpack a byte to thousands */
                return;
            }
            if (st != NULL) {
                hear_field(h, st, slice_of(field.name, field.namelen),
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

/* --- bodies ----------------------------------------------------------------------------------- */

void h2_feed(struct h2 *h, struct h2_stream *st)
{
    struct exchange *x = st->x;
    struct buf held;

    if (x->request != REQUEST_READING) {
        return;
    }
    if (x->expect_continue && x->answer == ANSWER_AWAITED) {
        char block[HPACK_UPDATE_BYTES + HPACK_INT_BYTES];
        char *end = hpack_status(hpack_begin(&h->heads, block), 100);

        h2_put(h, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, st->id,
               slice_of(block, (size_t)(end - block)));
    }
    x->expect_continue = false;
    if (!x->arrived) {
        h2_widen(h, st, STREAM_WINDOW); /* somebody reads: now the peer may send at full speed */
    }
    if (x->held.n == 0 && !x->arrived) {
        return;
    }
    held = x->held;
    x->held = BUF_INIT(held.max);
    exchange_deliver(x, buf_slice(&held), x->arrived);
    h2_consume_stream(h, st, held.n);
    buf_free(&held);
}

/* Past the bound the peer gets no more window, and its stream an end: but not before the answer has
 * left. */
static void discard_h2_body(struct h2 *h, struct h2_stream *st, size_t n)
{
    st->discarded += n;
    if (st->discarded <= h->conn->http_loop->limits->discard_bytes) {
        h2_consume_stream(h, st, n);
        return;
    }
    h2_consume(h, n);
    if (st->x->answer == ANSWER_SENT && st->doom == H2_LIVES) {
        st->doom = H2_BODY_REFUSED;
        h->conn->ops->wake(st->x);
    }
}

void h2_drop_held(struct h2 *h, struct h2_stream *st)
{
    size_t n = st->x->held.n;

    if (n != 0) {
        buf_free(&st->x->held);
        discard_h2_body(h, st, n);
    }
}

void h2_body(struct h2 *h, struct h2_stream *st, struct slice bytes)
{
    struct exchange *x = st->x;

    x->received += bytes.n;
    if (st->announced != LENGTH_UNKNOWN && x->received > st->announced) {
        h2_consume(h, bytes.n);
        h2_kill(h, st, NGHTTP2_PROTOCOL_ERROR);
    } else if (x->request == REQUEST_DROPPED) {
        discard_h2_body(h, st, bytes.n);
    } else if (x->request == REQUEST_READING && x->held.n == 0) {
        exchange_deliver(x, bytes, false);
        h2_consume_stream(h, st, bytes.n);
    } else if (!exchange_holds(x, x->held.n + bytes.n)) {
        h2_consume(h, bytes.n);
        h2_kill(h, st, NGHTTP2_ENHANCE_YOUR_CALM);
    } else {
        buf_adds(&x->held, bytes); /* bounded by the window that we do not give back */
        if (x->held.rc != 0) {
            h2_consume(h, bytes.n);
            h2_kill(h, st, NGHTTP2_INTERNAL_ERROR);
        }
    }
}

void h2_body_end(struct h2 *h, struct h2_stream *st)
{
    if (st->announced != LENGTH_UNKNOWN && st->x->received != st->announced) {
        h2_kill(h, st, NGHTTP2_PROTOCOL_ERROR);
        return;
    }
    st->x->arrived = true;
    if (st->state == H2_STREAM_HALF_CLOSED_LOCAL) {
        h2_stream_becomes(st, H2_STREAM_CLOSED);
        h2_stream_end(h, st, true);
    } else {
        h2_stream_becomes(st, H2_STREAM_HALF_CLOSED_REMOTE);
        h2_feed(h, st);
    }
}
