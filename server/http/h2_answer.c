/* h2_answer.c - answers on an HTTP/2 connection: heads, and DATA without a copy inside of nghttp2. */
#include "common/os/clock.h"
#include "server/http/h2.h"

enum {
    FRAME_MAX = 256 * 1024,
    FRAME_USUAL = 16 * 1024,
    FILE_FROM_BYTES = 128 * 1024,
    NV_FIXED = 5
};

/* --- heads ------------------------------------------------------------------------------------------------------------- */

static nghttp2_nv nv(struct slice name, struct slice value, uint8_t flags)
{
    return (nghttp2_nv){
        (uint8_t *)(uintptr_t)name.p, (uint8_t *)(uintptr_t)value.p, name.n, value.n,
        (uint8_t)(NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE | flags)};
}

static bool announces_length(const struct exchange *x)
{
    int status = x->reply->status;

    return x->body == NULL ? status != 204 && status != 304 : x->body->end != LENGTH_UNKNOWN;
}

static size_t build_head(struct exchange *x, nghttp2_nv *out)
{
    const struct http_reply *r = x->reply;
    struct arena *a = &x->arena;
    size_t n = 0;

    out[n++] = nv(SLICE(":status"), arena_u64(a, (uint64_t)r->status), 0);
    out[n++] =
        nv(SLICE("date"),
           r->date.p != NULL ? r->date : arena_copy(a, slice_str(x->conn->lane->loop->date)), 0);
    out[n++] = nv(SLICE("server"), SLICE("mirrord"), 0);
    /* Each differs: in the peer's table it would only push out what repeats. */
    out[n++] = nv(SLICE("x-request-id"), slice_of(x->req.id, 16), NGHTTP2_NV_FLAG_NO_INDEX);
    if (announces_length(x)) {
        uint64_t length = x->body != NULL ? x->body->end - x->body->off : 0;
        out[n++] = nv(SLICE("content-length"), arena_u64(a, length), 0);
    }
    for (size_t i = 0; i < r->nfields; i++) {
        out[n++] = nv(r->fields[i].name, r->fields[i].value, 0);
    }
    return n;
}

static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *buf, size_t length,
                       uint32_t *flags, nghttp2_data_source *source, void *user);

static int submit(struct h2 *h, struct exchange *x)
{
    const nghttp2_data_provider body = {.source.ptr = x, .read_callback = on_read};
    nghttp2_nv fields[REPLY_FIELDS + NV_FIXED];
    size_t n = build_head(x, fields);

    if (!x->reading) {
        h2_drop_held(h, x); /* who sends all of it before it listens must be able to go on */
    }
    x->head_sent = true;
    x->first_ns = x->began_ns != 0 ? clock_now_ns() - x->began_ns : 0;
    return nghttp2_submit_response(h->session, x->stream_id, fields, n,
                                   exchange_sends_body(x) ? &body : NULL);
}

int h2_answer(struct h2 *h, struct exchange *x)
{
    if (x->reply != NULL && !x->head_sent) {
        return submit(h, x);
    }
    if (x->deferred) {
        x->deferred = false;
        return nghttp2_session_resume_data(h->session, x->stream_id);
    }
    return 0;
}

/* --- bodies ------------------------------------------------------------------------------------------------------------ */

static ssize_t stage_copy(struct h2 *h, struct exchange *x, size_t n)
{
    struct wire *w = &h->conn->wire;
    char *to = wire_reserve(w, FRAME_HEAD_BYTES + n);

    if (wire_blocked(w)) {
        return NGHTTP2_ERR_PAUSE;
    }
    h->staged.at = to;
    h->staged.file = false;
    return exchange_pull(x, to + FRAME_HEAD_BYTES, n);
}

static ssize_t stage(struct h2 *h, struct exchange *x, size_t n)
{
    const struct body *b = x->body;

    /* Measured, CPU per GB: frames of 16 KiB 0.41 by sendfile and 0.16 by a copy, of 64 KiB 0.19 and 0.14; from 256 KiB
     * on sendfile wins, 0.11. Only peers that announce such frames get there. */
    if (body_is_file(b) && n >= FILE_FROM_BYTES && wire_takes_files(&h->conn->wire)) {
        h->staged.file = true;
        return exchange_present(x, n);
    }
    return stage_copy(h, x, min_u64(n, WIRE_PLAIN_BYTES - FRAME_HEAD_BYTES));
}

static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *buf, size_t length,
                       uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct h2 *h = user;
    struct exchange *x = source->ptr;
    ssize_t n;

    (void)session;
    (void)id;
    (void)buf;
    if (wire_blocked(&h->conn->wire) || h->budget == 0) {
        return NGHTTP2_ERR_PAUSE;
    }
    n = x->cut ? E_IO : exchange_ready(x, length);
    if (n > 0) {
        n = stage(h, x, (size_t)n);
    }
    if (n == NGHTTP2_ERR_PAUSE) {
        return n;
    }
    if (n == E_AGAIN) {
        x->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (n < 0) {
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* RST_STREAM INTERNAL_ERROR */
    }
    if (n > 0) {
        *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    }
    if (x->body->off + (uint64_t)n == x->body->end) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    }
    return n;
}

static int send_file(struct h2 *h, struct exchange *x, const uint8_t *head, size_t n)
{
    struct wire *w = &h->conn->wire;
    const struct body *b = x->body;
    size_t done = 0;

    wire_put(w, slice_of(head, FRAME_HEAD_BYTES));
    wire_flush(w, true);
    while (done < n && !w->broken && !wire_blocked(w)) {
        ssize_t sent = wire_sendfile(w, b->fd, b->off + done, n - done);
        if (sent == E_AGAIN) {
            break;
        }
        if (sent < 0) { /* the header has promised bytes that do not exist */
            return NGHTTP2_ERR_CALLBACK_FAILURE;
        }
        done += (size_t)sent;
    }
    if (done < n && !w->broken) {
        wire_owe_file(w, b->fd, b->off + done, n - done);
    }
    return 0;
}

static int on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head,
                        size_t length, nghttp2_data_source *source, void *user)
{
    struct h2 *h = user;
    struct exchange *x = source->ptr;
    struct wire *w = &h->conn->wire;

    (void)session;
    CHECK(frame->data.padlen == 0);
    if (h->staged.file) {
        if (send_file(h, x, head, length) != 0) {
            return NGHTTP2_ERR_CALLBACK_FAILURE;
        }
    } else {
        char *to = wire_reserve(w, FRAME_HEAD_BYTES + length);
        CHECK(to == h->staged.at);
        memcpy(to, head, FRAME_HEAD_BYTES);
        wire_commit(w, FRAME_HEAD_BYTES + length);
    }
    exchange_sent(x, length);
    h->useful_bytes += length;
    h->budget -= min_u64(h->budget, length);
    return w->broken ? NGHTTP2_ERR_CALLBACK_FAILURE : wire_blocked(w) ? NGHTTP2_ERR_PAUSE : 0;
}

static ssize_t on_length(nghttp2_session *session, uint8_t type, int32_t id, int32_t session_window,
                         int32_t stream_window, uint32_t frame_max, void *user)
{
    const struct h2 *h = user;
    uint64_t n = min_u64(min_u64((uint64_t)session_window, (uint64_t)stream_window), frame_max);

    (void)session;
    (void)type;
    (void)id;
    return (ssize_t)min_u64(n, wire_takes_files(&h->conn->wire) ? FRAME_MAX : FRAME_USUAL);
}

void h2_refuse_more(struct h2 *h, struct exchange *x)
{
    if (!x->refused_more) {
        x->refused_more = true;
        nghttp2_submit_rst_stream(h->session, NGHTTP2_FLAG_NONE, x->stream_id, NGHTTP2_NO_ERROR);
    }
}

/* More of the request's body is on its way, or was, than is let in. */
static bool body_is_too_long(const struct exchange *x)
{
    uint64_t bound = x->conn->lane->limits->discard_bytes;

    return !x->received_all && !x->reading &&
           (x->discarded > bound ||
            (x->req.content_length != LENGTH_UNKNOWN && x->req.content_length > bound));
}

static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct h2 *h = user;
    struct exchange *x = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    bool ours = frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS;

    if (frame->hd.type == NGHTTP2_RST_STREAM) {
        uint32_t code = frame->rst_stream.error_code;
        if (code == NGHTTP2_PROTOCOL_ERROR || code == NGHTTP2_FLOW_CONTROL_ERROR ||
            code == NGHTTP2_STREAM_CLOSED || code == NGHTTP2_FRAME_SIZE_ERROR) {
            h2_reset(h); /* we had to, because of the peer: "made you reset" */
        }
    } else if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR) {
        count(&h->conn->lane->counters.protocol_errors, 1);
    } else if (ours && x != NULL && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
        x->sent_all = true;
        /* RFC 9113 8.1: send no more of that body. What is nearly here anyway is let in and dropped: clients (libcurl
         * 7.88 among them) lose the answer when its stream is reset behind it. */
        if (body_is_too_long(x)) {
            h2_refuse_more(h, x);
        }
    }
    return 0;
}

void h2_speak(nghttp2_session_callbacks *on)
{
    nghttp2_session_callbacks_set_send_data_callback(on, on_send_data);
    nghttp2_session_callbacks_set_data_source_read_length_callback(on, on_length);
    nghttp2_session_callbacks_set_on_frame_send_callback(on, on_sent);
}
