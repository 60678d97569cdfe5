/* h2_answer.c - answers on an HTTP/2 connection: heads, and DATA turn by turn. */
#include "server/http/h2.h"

enum { FRAME_MAX = 256 * 1024, FILE_FROM_BYTES = 128 * 1024, FRAMES_A_READ = 4 };

/* --- heads ------------------------------------------------------------------------------------------------------------- */

static bool announces_length(const struct exchange *x)
{
    int status = x->reply->status;

    return x->body == NULL ? status != 204 && status != 304 : x->body->end != LENGTH_UNKNOWN;
}

/* What will not come again, or must not be found out by guessing what the table holds. */
static bool is_secret(struct slice name)
{
    return slice_eq(name, SLICE("location")) || slice_eq(name, SLICE("set-cookie"));
}

static struct slice date_of(const struct exchange *x)
{
    return x->reply->date.p != NULL ? x->reply->date : slice_str(x->conn->lane->loop->date);
}

static size_t head_bound(const struct exchange *x)
{
    const struct http_reply *r = x->reply;
    size_t n =
        320 + date_of(x).n + reply_policy(r).n; /* what every answer has, and a copy's slack */

    for (size_t i = 0; i < r->nfields; i++) {
        n += hpack_bound(r->fields[i].name, r->fields[i].value);
    }
    return n;
}

/* What each answer from one place has in common; mostly a byte a field, and the same bytes as the last time. */
static char *put_numbered(struct h2 *h2, char *to, const struct http_reply *r)
{
    struct hpack *h = &h2->heads;
    uint32_t last = h->last, spelt = h->spelt;
    char *begin = to;

    if (r->number != 0 && h2->said.number == r->number && h2->said.last == last) {
        memcpy(to, h2->said.bytes, SAID_BYTES);
        return to + h2->said.n;
    }
    to = hpack_field(h, to, SLICE("server"), SLICE("mirrord"), false);
    to = hpack_field(h, to, SLICE("x-content-type-options"), SLICE("nosniff"), false);
    to = hpack_field(h, to, SLICE("content-security-policy"), reply_policy(r), false);
    for (size_t i = 0; r->number != 0 && i < r->numbered; i++) {
        to =
            hpack_field(h, to, r->fields[i].name, r->fields[i].value, is_secret(r->fields[i].name));
    }
    if (r->number != 0 && h->last == last && h->spelt == spelt && to - begin <= SAID_BYTES) {
        h2->said.number = r->number;
        h2->said.last = last;
        h2->said.n = (uint8_t)(to - begin);
        memcpy(h2->said.bytes, begin, h2->said.n);
    }
    return to;
}

static char *put_head(struct h2 *h2, char *to, const struct exchange *x)
{
    struct hpack *h = &h2->heads;
    const struct http_reply *r = x->reply;
    char room[U64_DIGITS];

    to = hpack_status(hpack_begin(h, to), r->status);
    to = hpack_field(h, to, SLICE("date"), date_of(x), false);
    to = put_numbered(h2, to, r);
    to = hpack_field(h, to, SLICE("x-request-id"), slice_of(x->req.id, 16), true);
    if (announces_length(x)) {
        uint64_t length = x->body != NULL ? x->body->end - x->body->off : 0;
        to = hpack_field(h, to, SLICE("content-length"), slice_of_u64(room, length), false);
    }
    for (size_t i = r->number != 0 ? r->numbered : 0; i < r->nfields; i++) {
        to =
            hpack_field(h, to, r->fields[i].name, r->fields[i].value, is_secret(r->fields[i].name));
    }
    return to;
}

/* A head too long for one frame, which few are. */
static void put_pieces(struct h2 *h, struct exchange *x, size_t bound, uint8_t flags)
{
    char *block = arena_alloc(&x->arena, bound);
    struct slice rest = slice_of(block, (size_t)(put_head(h, block, x) - block));
    uint8_t type = NGHTTP2_HEADERS;

    do {
        struct slice piece = slice_first(rest, min_u64(rest.n, FRAME_USUAL));
        rest = slice_from(rest, piece.n);
        h2_put(h, type, flags | (rest.n == 0 ? NGHTTP2_FLAG_END_HEADERS : 0), x->stream_id, piece);
        type = NGHTTP2_CONTINUATION;
        flags = 0;
    } while (rest.n != 0);
}

static void say_head(struct h2 *h, struct exchange *x, bool ends)
{
    struct wire *w = &h->conn->wire;
    uint8_t flags = ends ? NGHTTP2_FLAG_END_STREAM : 0;
    size_t bound = head_bound(x);
    char *to, *end;

    if (!x->reading) {
        h2_drop_held(h, x); /* who sends all of it before it listens must be able to go on */
    }
    x->head_sent = true;
    x->first_ns = x->began_ns != 0 ? lane_clock_ns(x->conn->lane) - x->began_ns : 0;
    if (bound > FRAME_USUAL) {
        put_pieces(h, x, bound, flags);
        return;
    }
    to = wire_reserve(w, FRAME_HEAD_BYTES + bound);
    end = put_head(h, to + FRAME_HEAD_BYTES, x);
    h2_frame_head(to, (size_t)(end - to) - FRAME_HEAD_BYTES, NGHTTP2_HEADERS,
                  flags | NGHTTP2_FLAG_END_HEADERS, x->stream_id);
    wire_commit(w, (size_t)(end - to));
}

/* --- bodies ------------------------------------------------------------------------------------------------------------ */

/* More of the request's body is on its way, or was, than is let in. */
static bool body_is_too_long(const struct exchange *x)
{
    uint64_t bound = x->conn->lane->limits->discard_bytes;

    return !x->received_all && !x->reading &&
           (x->discarded > bound ||
            (x->req.content_length != LENGTH_UNKNOWN && x->req.content_length > bound));
}

/* x may be gone after it. */
static void said_all(struct h2 *h, struct exchange *x)
{
    x->sent_all = true;
    /* RFC 9113 8.1: send no more of that body. What is nearly here anyway is let in and dropped: clients (libcurl
     * 7.88 among them) lose the answer when its stream is reset behind it. */
    if (body_is_too_long(x)) {
        h2_kill(h, x, NGHTTP2_NO_ERROR);
    } else if (x->received_all) {
        h2_stream_end(h, x, true);
    }
}

static size_t frame_bound(const struct h2 *h)
{
    return min_u64(wire_takes_files(&h->conn->wire) ? FRAME_MAX : FRAME_USUAL, h->frame_max);
}

/* Of one turn: a frame, or as many of usual size as one read fills. */
static size_t turn_bound(const struct h2 *h, const struct exchange *x)
{
    int64_t window = h->window < x->window ? h->window : x->window;
    size_t most = max_u64(frame_bound(h), FRAMES_A_READ * FRAME_USUAL);

    return window <= 0 ? 0 : (size_t)min_u64((uint64_t)window, most);
}

/* A frame is in the scratch, or a piece of a file is promised. */
static void count_sent(struct h2 *h, struct exchange *x, size_t n)
{
    exchange_sent(x, n);
    h->useful_bytes += n;
    h->sent_ms = x->moved_ms;
    h->window -= (int64_t)n;
    x->window -= (int64_t)n;
    h->budget -= min_u64(h->budget, n);
}

static uint8_t end_flag(const struct exchange *x, size_t n)
{
    return x->body->off + n == x->body->end ? NGHTTP2_FLAG_END_STREAM : 0;
}

/* Its bytes behind room for a header in the scratch: > 0; E_BUSY: the wire is blocked; E_*. */
static ssize_t send_copy(struct h2 *h, struct exchange *x, size_t n)
{
    struct wire *w = &h->conn->wire;
    char *to = wire_reserve(w, FRAME_HEAD_BYTES + n);
    ssize_t got;

    if (wire_blocked(w)) {
        return E_BUSY;
    }
    got = exchange_pull(x, to + FRAME_HEAD_BYTES, n);
    if (got > 0) {
        h2_frame_head(to, (size_t)got, NGHTTP2_DATA, end_flag(x, (size_t)got), x->stream_id);
        wire_commit(w, FRAME_HEAD_BYTES + (size_t)got);
    }
    return got;
}

/* Frames of usual size, filled by one read: a read is as dear as what is done for a frame beside it. */
static ssize_t send_copies(struct h2 *h, struct exchange *x, size_t n)
{
    enum { STEP = FRAME_HEAD_BYTES + FRAME_USUAL };
    struct wire *w = &h->conn->wire;
    struct iovec part[FRAMES_A_READ];
    size_t count = (n + FRAME_USUAL - 1) / FRAME_USUAL;
    char *to = wire_reserve(w, FRAME_HEAD_BYTES * count + n);
    ssize_t got;

    if (wire_blocked(w)) {
        return E_BUSY;
    }
    for (size_t i = 0; i < count; i++) {
        part[i].iov_base = to + i * STEP + FRAME_HEAD_BYTES;
        part[i].iov_len = min_u64(n - i * FRAME_USUAL, FRAME_USUAL);
    }
    got = exchange_pull_pieces(x, part, (int)count);
    for (size_t at = 0; got > 0 && at < (size_t)got; at += FRAME_USUAL) {
        size_t piece = min_u64((size_t)got - at, FRAME_USUAL);
        h2_frame_head(to + at / FRAME_USUAL * STEP, piece, NGHTTP2_DATA, end_flag(x, at + piece),
                      x->stream_id);
        wire_commit(w, FRAME_HEAD_BYTES + piece);
    }
    return got;
}

static ssize_t send_file(struct h2 *h, struct exchange *x, size_t most)
{
    struct wire *w = &h->conn->wire;
    const struct body *b = x->body;
    ssize_t n = exchange_present(x, most);
    size_t done = 0;

    if (n <= 0) {
        return n;
    }
    h2_frame_head(wire_reserve(w, FRAME_HEAD_BYTES), (size_t)n, NGHTTP2_DATA,
                  end_flag(x, (size_t)n), x->stream_id);
    wire_commit(w, FRAME_HEAD_BYTES);
    wire_flush(w, true);
    while (done < (size_t)n && !w->broken && !wire_blocked(w)) {
        ssize_t sent = wire_sendfile(w, b->fd, b->off + done, (size_t)n - done);
        if (sent == E_AGAIN) {
            break;
        }
        if (sent < 0) { /* the header has promised bytes that do not exist */
            wire_break(w);
            return sent;
        }
        done += (size_t)sent;
    }
    if (done < (size_t)n && !w->broken) {
        wire_owe_file(w, b->fd, b->off + done, (size_t)n - done);
    }
    return n;
}

/* Measured, CPU per GB: frames of 16 KiB 0.41 by sendfile and 0.16 by a copy, of 64 KiB 0.19 and 0.14; from 256 KiB
 * on sendfile wins, 0.11. Only peers that announce such frames get there. */
static ssize_t send_frames(struct h2 *h, struct exchange *x, size_t n)
{
    size_t frame = frame_bound(h);

    if (body_is_file(x->body) && min_u64(n, frame) >= FILE_FROM_BYTES) {
        return send_file(h, x, min_u64(n, frame));
    }
    if (body_is_file(x->body) && n > FRAME_USUAL && frame == FRAME_USUAL) {
        return send_copies(h, x, min_u64(n, FRAMES_A_READ * FRAME_USUAL));
    }
    return send_copy(h, x, min_u64(min_u64(n, frame), WIRE_PLAIN_BYTES - FRAME_HEAD_BYTES));
}

/* A turn of x's body. True: it waits for its next turn; else it has ended, or something will wake it. */
static bool send_some(struct h2 *h, struct exchange *x)
{
    size_t most = turn_bound(h, x);
    ssize_t n = x->cut ? E_IO : exchange_ready(x, most != 0 ? most : 1);

    if (n > 0 && most == 0) {
        return x->window > 0; /* else h2_resume() */
    }
    if (n > 0) {
        n = send_frames(h, x, (size_t)n);
    } else if (n == 0) { /* it has become known that this was all */
        h2_put(h, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, x->stream_id, SLICE_NONE);
    }
    if (n == E_BUSY) {
        return true;
    }
    if (n == E_AGAIN) {
        x->deferred = true;
        return false;
    }
    if (n < 0) {
        h2_kill(h, x, NGHTTP2_INTERNAL_ERROR);
        return false;
    }
    count_sent(h, x, (size_t)n);
    if (x->body->off == x->body->end) {
        said_all(h, x);
        return false;
    }
    return true;
}

static void take_turn(struct h2 *h, struct exchange *x)
{
    if (send_some(h, x)) {
        list_push_back(&h->sending, &x->sending);
    }
}

static bool may_send(const struct h2 *h)
{
    return !wire_blocked(&h->conn->wire) && !h->conn->wire.broken && h->budget != 0;
}

void h2_send(struct h2 *h)
{
    unsigned idle = 0; /* turns that moved nothing: the connection's window is shut */

    while (may_send(h) && !list_empty(&h->sending) && idle < h->nstreams) {
        size_t before = h->budget;
        lane_tick(h->conn->lane);
        struct list *n = list_pop_front(&h->sending);
        take_turn(h, LIST_ITEM(n, struct exchange, sending));
        idle = h->budget == before ? idle + 1 : 0;
    }
}

void h2_resume(struct h2 *h, struct exchange *x)
{
    if (x->window > 0 && x->head_sent && !x->sent_all && !x->deferred &&
        !list_linked(&x->sending)) {
        list_push_back(&h->sending, &x->sending);
    }
}

void h2_answer(struct h2 *h, struct exchange *x)
{
    bool body;

    if (x->refused_more && x->sent_all) {
        h2_kill(h, x, NGHTTP2_NO_ERROR);
        return;
    }
    if (x->head_sent && x->deferred) { /* even without a window: its end needs none */
        x->deferred = false;
        list_push_back(&h->sending, &x->sending);
    }
    if (x->reply == NULL || x->head_sent) {
        return;
    }
    if (wire_blocked(&h->conn->wire)) {
        x->conn->ops->wake(x); /* which its handler may have done already */
        return;
    }
    body = exchange_sends_body(x) && (x->body->ops->poll != NULL || x->body->off != x->body->end);
    say_head(h, x, !body);
    if (!body) {
        said_all(h, x);
    } else if (may_send(h)) {
        take_turn(h, x);
    } else {
        list_push_back(&h->sending, &x->sending);
    }
}
