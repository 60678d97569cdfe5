/* h2_answer.c - answers on an HTTP/2 connection: heads, and DATA in turns. */
#include "server/http/h2.h"

enum { FRAME_MAX = 256 * 1024, FILE_FROM_BYTES = 128 * 1024, FRAMES_A_READ = 4 };

/* --- heads ------------------------------------------------------------------------------------ */

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
    return x->reply->date.p != NULL ? x->reply->date : slice_str(x->conn->http_loop->loop->date);
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

/* What each answer from one place has in common; mostly a byte a field, and the same bytes as the
 * last time. */
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

static char *put_h2_head(struct h2 *h2, char *to, const struct exchange *x)
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
static void put_pieces(struct h2 *h, struct h2_stream *st, size_t bound, uint8_t flags)
{
    char *block = arena_alloc(&st->x->arena, bound);
    struct slice rest = slice_of(block, (size_t)(put_h2_head(h, block, st->x) - block));
    uint8_t type = NGHTTP2_HEADERS;

    do {
        struct slice piece = slice_first(rest, min_u64(rest.n, FRAME_USUAL));
        rest = slice_from(rest, piece.n);
        h2_put(h, type, flags | (rest.n == 0 ? NGHTTP2_FLAG_END_HEADERS : 0), st->id, piece);
        type = NGHTTP2_CONTINUATION;
        flags = 0;
    } while (rest.n != 0);
}

static void say_head(struct h2 *h, struct h2_stream *st, bool ends)
{
    struct wire *w = &h->conn->wire;
    struct exchange *x = st->x;
    uint8_t flags = ends ? NGHTTP2_FLAG_END_STREAM : 0;
    size_t bound = head_bound(x);
    char *to, *end;

    if (x->request == REQUEST_DROPPED) {
        h2_drop_held(h, st); /* who sends all of it before it listens must be able to go on */
    }
    exchange_answer_becomes(x, ANSWER_SENDING);
    x->first_ns = x->began_ns != 0 ? http_loop_clock_ns(x->conn->http_loop) - x->began_ns : 0;
    if (bound > FRAME_USUAL) {
        put_pieces(h, st, bound, flags);
        return;
    }
    to = wire_reserve(w, FRAME_HEAD_BYTES + bound);
    end = put_h2_head(h, to + FRAME_HEAD_BYTES, x);
    h2_frame_head(to, (size_t)(end - to) - FRAME_HEAD_BYTES, NGHTTP2_HEADERS,
                  flags | NGHTTP2_FLAG_END_HEADERS, st->id);
    wire_commit(w, (size_t)(end - to));
}

/* --- bodies ----------------------------------------------------------------------------------- */

/* More of the request's body is on its way, or was, than is let in. */
static bool body_is_too_long(const struct h2_stream *st)
{
    uint64_t bound = st->x->conn->http_loop->limits->discard_bytes;
    uint64_t length = st->x->req.content_length;

    return !h2_has_all(st) && st->x->request == REQUEST_DROPPED &&
           (st->discarded > bound || (length != LENGTH_UNKNOWN && length > bound));
}

/* The stream may be gone after it. */
static void said_all(struct h2 *h, struct h2_stream *st)
{
    exchange_answer_becomes(st->x, ANSWER_SENT);
    if (st->state == H2_STREAM_HALF_CLOSED_REMOTE) {
        h2_stream_becomes(st, H2_STREAM_CLOSED);
        h2_stream_end(h, st, true);
        return;
    }
    h2_stream_becomes(st, H2_STREAM_HALF_CLOSED_LOCAL);
    /* RFC 9113 8.1: send no more of that body. What is nearly here anyway is let in and dropped:
     * clients (libcurl 7.88 among them) lose the answer when its stream is reset behind it. */
    if (body_is_too_long(st)) {
        h2_kill(h, st, NGHTTP2_NO_ERROR);
    }
}

static size_t frame_bound(const struct h2 *h)
{
    return min_u64(wire_takes_files(&h->conn->wire) ? FRAME_MAX : FRAME_USUAL, h->frame_max);
}

/* Of one turn: a frame, or as many of usual size as one read fetches. */
static size_t turn_bound(const struct h2 *h, const struct h2_stream *st)
{
    int64_t window = h->window < st->window ? h->window : st->window;
    size_t most = max_u64(frame_bound(h), FRAMES_A_READ * FRAME_USUAL);

    return window <= 0 ? 0 : (size_t)min_u64((uint64_t)window, most);
}

/* A frame is in the scratch, or a piece of a file is promised. */
static void count_sent(struct h2 *h, struct h2_stream *st, size_t n)
{
    exchange_sent(st->x, n);
    h->useful_bytes += n;
    h->sent_ms = st->x->moved_ms;
    h->window -= (int64_t)n;
    st->window -= (int64_t)n;
    h->budget -= min_u64(h->budget, n);
}

static uint8_t end_flag(const struct h2_stream *st, size_t n)
{
    return st->x->body->off + n == st->x->body->end ? NGHTTP2_FLAG_END_STREAM : 0;
}

/* Its bytes behind room for a header in the scratch: > 0; E_BUSY: the wire is blocked; E_*. */
static ssize_t send_copy(struct h2 *h, struct h2_stream *st, size_t n)
{
    struct wire *w = &h->conn->wire;
    char *to = wire_reserve(w, FRAME_HEAD_BYTES + n);
    ssize_t got;

    if (wire_blocked(w)) {
        return E_BUSY;
    }
    got = exchange_pull(st->x, to + FRAME_HEAD_BYTES, n);
    if (got > 0) {
        h2_frame_head(to, (size_t)got, NGHTTP2_DATA, end_flag(st, (size_t)got), st->id);
        wire_commit(w, FRAME_HEAD_BYTES + (size_t)got);
    }
    return got;
}

/* Frames of usual size, filled by one read: a read is as dear as what is done for a frame beside
 * it. */
static ssize_t send_copies(struct h2 *h, struct h2_stream *st, size_t n)
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
    got = exchange_pull_pieces(st->x, part, (int)count);
    for (size_t at = 0; got > 0 && at < (size_t)got; at += FRAME_USUAL) {
        size_t piece = min_u64((size_t)got - at, FRAME_USUAL);
        h2_frame_head(to + at / FRAME_USUAL * STEP, piece, NGHTTP2_DATA, end_flag(st, at + piece),
                      st->id);
        wire_commit(w, FRAME_HEAD_BYTES + piece);
    }
    return got;
}

static ssize_t send_h2_file(struct h2 *h, struct h2_stream *st, size_t most)
{
    struct wire *w = &h->conn->wire;
    const struct body *b = st->x->body;
    ssize_t n = exchange_present(st->x, most);
    size_t done = 0;

    if (n <= 0) {
        return n;
    }
    h2_frame_head(wire_reserve(w, FRAME_HEAD_BYTES), (size_t)n, NGHTTP2_DATA,
                  end_flag(st, (size_t)n), st->id);
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

/* Measured, CPU per GB: frames of 16 KiB 0.41 by sendfile and 0.16 by a copy, of 64 KiB 0.19 and
 * 0.14; from 256 KiB on sendfile wins, 0.11. Only peers that announce such frames get there. */
static ssize_t send_frames(struct h2 *h, struct h2_stream *st, size_t n)
{
    size_t frame = frame_bound(h);

    if (body_is_file(st->x->body) && min_u64(n, frame) >= FILE_FROM_BYTES) {
        return send_h2_file(h, st, min_u64(n, frame));
    }
    if (body_is_file(st->x->body) && n > FRAME_USUAL && frame == FRAME_USUAL) {
        return send_copies(h, st, min_u64(n, FRAMES_A_READ * FRAME_USUAL));
    }
    return send_copy(h, st, min_u64(min_u64(n, frame), WIRE_PLAIN_BYTES - FRAME_HEAD_BYTES));
}

/* A turn of x's body. True: it waits for its next turn; else it has ended, or something will wake
 * it. */
static bool send_stream_data(struct h2 *h, struct h2_stream *st)
{
    size_t most = turn_bound(h, st);
    ssize_t n = st->x->cut ? E_IO : exchange_ready(st->x, most != 0 ? most : 1);

    if (n > 0 && most == 0) {
        return st->window > 0; /* else h2_resume() */
    }
    if (n > 0) {
        n = send_frames(h, st, (size_t)n);
    } else if (n == 0) { /* it has become known that this was all */
        h2_put(h, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, st->id, SLICE_NONE);
    }
    if (n == E_BUSY) {
        return true;
    }
    if (n == E_AGAIN) {
        exchange_answer_becomes(st->x, ANSWER_STARVED);
        return false;
    }
    if (n < 0) {
        h2_kill(h, st, NGHTTP2_INTERNAL_ERROR);
        return false;
    }
    count_sent(h, st, (size_t)n);
    if (st->x->body->off == st->x->body->end) {
        said_all(h, st);
        return false;
    }
    return true;
}

static void take_turn(struct h2 *h, struct h2_stream *st)
{
    if (send_stream_data(h, st)) {
        list_push_back(&h->sending, &st->sending);
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
        http_loop_tick(h->conn->http_loop);
        struct list *n = list_pop_front(&h->sending);
        take_turn(h, LIST_ITEM(n, struct h2_stream, sending));
        idle = h->budget == before ? idle + 1 : 0;
    }
}

void h2_resume(struct h2 *h, struct h2_stream *st)
{
    if (st->window > 0 && st->x->answer == ANSWER_SENDING && !list_linked(&st->sending)) {
        list_push_back(&h->sending, &st->sending);
    }
}

void h2_answer(struct h2 *h, struct h2_stream *st)
{
    struct exchange *x = st->x;
    bool body;

    if (st->doom == H2_BODY_REFUSED) {
        h2_kill(h, st, NGHTTP2_NO_ERROR);
        return;
    }
    if (x->answer == ANSWER_STARVED) { /* even without a window: its end needs none */
        exchange_answer_becomes(x, ANSWER_SENDING);
        list_push_back(&h->sending, &st->sending);
    }
    if (x->answer != ANSWER_READY) {
        return;
    }
    if (wire_blocked(&h->conn->wire)) {
        h->conn->ops->wake(x); /* which its handler may have done already */
        return;
    }
    body = exchange_sends_body(x) && (x->body->ops->poll != NULL || x->body->off != x->body->end);
    say_head(h, st, !body);
    if (!body) {
        said_all(h, st);
    } else if (may_send(h)) {
        take_turn(h, st);
    } else {
        list_push_back(&h->sending, &st->sending);
    }
}
