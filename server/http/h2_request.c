/* h2_request.c - requests on an HTTP/2 connection: what nghttp2 tells becomes exchanges. */
#include "server/http/h2.h"

enum { STREAM_WINDOW = 1024 * 1024, FIELDS_FIRST = 16, FIELD_OVERHEAD_BYTES = 32 };

static struct exchange *stream_of(const struct h2 *h, int32_t id)
{
    return nghttp2_session_get_stream_user_data(h->session, id);
}

/* --- heads ------------------------------------------------------------------------------------------------------------- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct h2 *h = user;
    struct exchange *x;

    h->head_begun_ms = h->conn->lane->loop->now_ms;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
        return 0;
    }
    x = exchange_new(h->conn);
    x->stream_id = frame->hd.stream_id;
    x->held = BUF_INIT(STREAM_WINDOW + 64 * 1024);
    x->req.version = HTTP_2;
    list_push_back(&h->streams, &x->node);
    h->nstreams++;
    return nghttp2_session_set_stream_user_data(session, x->stream_id, x);
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
    if (slice_eqs(name, ":method")) {
        x->req.method_text = arena_copy(&x->arena, value);
    } else if (slice_eqs(name, ":path")) {
        x->req.target = arena_copy(&x->arena, value);
    } else if (slice_eqs(name, ":authority")) {
        x->authority = arena_copy(&x->arena, value);
    }
}

static void take_field(struct exchange *x, struct slice name, struct slice value)
{
    if (name.p[0] == ':') {
        take_pseudo(x, name, value);
    } else if (slice_eqs(name, "host")) {
        x->req.host = arena_copy(&x->arena, value);
    } else if (slice_eqs(name, "content-length")) {
        (void)!slice_u64(value,
                         &x->req.content_length); /* nghttp2 has judged it, and counts along */
    } else if (slice_eqs(name, "expect")) {
        x->expect_continue = slice_ieq(value, SLICE("100-continue"));
    } else if (!slice_eqs(name, "te") && !slice_eqs(name, "trailer")) {
        add_field(x, name, value);
    }
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_n, const uint8_t *value, size_t value_n, uint8_t flags, void *user)
{
    struct h2 *h = user;
    const struct http_limits *l = h->conn->lane->limits;
    struct exchange *x = stream_of(h, frame->hd.stream_id);

    (void)session;
    (void)flags;
    if (x == NULL) {
        return 0;
    }
    x->header_bytes += name_n + value_n + FIELD_OVERHEAD_BYTES;
    if (x->header_bytes > l->header_bytes || x->req.nfields >= l->header_fields) {
        x->refuse_status = 431;
    }
    if (!x->dispatched && x->refuse_status == 0) { /* else a trailer, which nobody sees */
        take_field(x, slice_of(name, name_n), slice_trim(slice_of(value, value_n)));
    }
    return 0;
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
    static const nghttp2_extpri fair = {.urgency = NGHTTP2_EXTPRI_DEFAULT_URGENCY, .inc = 1};
    int status;

    /* Turn by turn: an index must not wait behind 70 GB on the same connection. */
    nghttp2_session_change_extpri_stream_priority(h->session, x->stream_id, &fair, 1);
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

/* --- bodies -------------------------------------------------------------------------------------------------------------- */

void h2_feed(struct h2 *h, struct exchange *x)
{
    struct buf held;

    if (!x->reading || x->paused || x->end_told) {
        return;
    }
    if (x->expect_continue) {
        static uint8_t name[] = ":status";
        static uint8_t value[] = "100";
        const nghttp2_nv go_on = {name, value, sizeof name - 1, sizeof value - 1,
                                  NGHTTP2_NV_FLAG_NONE};
        x->expect_continue = false;
        if (x->reply == NULL) {
            nghttp2_submit_headers(h->session, NGHTTP2_FLAG_NONE, x->stream_id, NULL, &go_on, 1,
                                   NULL);
        }
    }
    if (!x->wide && !x->received_all) {
        x->wide = true; /* somebody reads: now the peer may send at full speed */
        nghttp2_session_set_local_window_size(h->session, NGHTTP2_FLAG_NONE, x->stream_id,
                                              STREAM_WINDOW);
    }
    if (x->held.n == 0 && !x->received_all) {
        return;
    }
    held = x->held;
    x->held = BUF_INIT(held.max);
    exchange_deliver(x, buf_slice(&held), x->received_all);
    nghttp2_session_consume(h->session, x->stream_id, held.n);
    buf_free(&held);
}

/* Past the bound the peer gets no more window, and its stream an end: but not before the answer has left. */
static void discard(struct h2 *h, struct exchange *x, size_t n)
{
    x->discarded += n;
    if (x->discarded <= h->conn->lane->limits->discard_bytes) {
        nghttp2_session_consume(h->session, x->stream_id, n);
        return;
    }
    nghttp2_session_consume_connection(h->session, n);
    if (x->sent_all) {
        h2_refuse_more(h, x);
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

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
                   size_t n, void *user)
{
    struct h2 *h = user;
    struct exchange *x = stream_of(h, id);

    (void)flags;
    h->useful_bytes += n;
    if (x == NULL) {
        return nghttp2_session_consume_connection(session, n);
    }
    x->received += n;
    if (x->reply != NULL && !x->reading) {
        discard(h, x, n);
    } else if (x->reading && !x->paused && x->held.n == 0) {
        exchange_deliver(x, slice_of(bytes, n), false);
        nghttp2_session_consume(session, id, n);
    } else {
        buf_add(&x->held, bytes, n); /* bounded by the window that we do not give back */
        if (x->held.rc != 0) {
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        }
    }
    return 0;
}

static void body_ended(struct h2 *h, struct exchange *x)
{
    x->received_all = true;
    h2_feed(h, x);
}

/* --- frames ------------------------------------------------------------------------------------------------------------ */

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct h2 *h = user;
    struct exchange *x = stream_of(h, frame->hd.stream_id);
    bool ends = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;

    (void)session;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        h->head_begun_ms = 0;
        if (x != NULL && !x->dispatched && x->reply == NULL) {
            begin_request(h, x, ends);
        } else if (x != NULL && ends) {
            body_ended(h, x);
        }
        break;
    case NGHTTP2_DATA:
        if (frame->hd.length == 0 && !ends) {
            h2_useless(h);
        }
        if (x != NULL && ends) {
            body_ended(h, x);
        }
        break;
    case NGHTTP2_RST_STREAM:
        h2_reset(h);
        break;
    case NGHTTP2_WINDOW_UPDATE: /* needed, and cheap; floods() weighs them */
        break;
    default:
        h2_useless(h);
    }
    return 0;
}

static int on_invalid(nghttp2_session *session, const nghttp2_frame *frame, int why, void *user)
{
    (void)session;
    (void)frame;
    (void)why;
    h2_reset(user);
    return 0;
}

/* RFC 9113 6.3. nghttp2 does not look at PRIORITY any more, once it has said that it does not heed it. */
static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *user)
{
    (void)user;
    return hd->type == NGHTTP2_PRIORITY && hd->stream_id == 0
               ? nghttp2_session_terminate_session(session, NGHTTP2_PROTOCOL_ERROR)
               : 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *user)
{
    struct h2 *h = user;
    struct exchange *x = nghttp2_session_get_stream_user_data(session, id);

    (void)code;
    if (x != NULL) {
        h2_stream_end(h, x, x->sent_all);
    }
    return 0;
}

void h2_hear(nghttp2_session_callbacks *on)
{
    nghttp2_session_callbacks_set_on_begin_headers_callback(on, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(on, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(on, on_data);
    nghttp2_session_callbacks_set_on_begin_frame_callback(on, on_begin_frame);
    nghttp2_session_callbacks_set_on_frame_recv_callback(on, on_frame);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(on, on_invalid);
    nghttp2_session_callbacks_set_on_stream_close_callback(on, on_stream_close);
}
