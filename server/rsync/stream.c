#include "server/rsync/stream.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "common/os/clock.h"

enum { READ_BYTES = 32 << 10, TICK_MS = 250, PACE_MS = 5, PARTING_MS = 2000 };

void stream_init(struct stream *s, int fd, uint32_t stall_ms, const struct reader_rate_limit *least,
                 const atomic_bool *stop)
{
    *s = (struct stream){.fd = fd, .stall_ms = stall_ms, .least = least, .stop = stop};
    mux_init(&s->mux);
    s->raw = BUF_INIT(STREAM_AHEAD + READ_BYTES);
    s->data = BUF_INIT(2 * STREAM_AHEAD);
    s->draft = BUF_INIT(4 * STREAM_OUT);
    s->out = BUF_INIT(8 * STREAM_OUT);
}

void stream_fini(struct stream *s)
{
    mux_fini(&s->mux);
    buf_free(&s->raw);
    buf_free(&s->data);
    buf_free(&s->draft);
    buf_free(&s->out);
}

/* --- waiting ---------------------------------------------------------------------------------- */

/* A wait that begins now ends then. */
static uint64_t patience(const struct stream *s)
{
    uint64_t until = clock_now_ms() + s->stall_ms;

    return s->deadline_ms != 0 ? min_u64(s->deadline_ms, until) : until;
}

/* Looked at first, then waited for: who is too late is so whatever has just come. */
static int wait_for_stream(struct stream *s, short what, uint64_t until, short *got, struct err *e)
{
    for (;;) {
        struct pollfd p = {.fd = s->fd, .events = what};
        int n;
        if (atomic_load(s->stop)) {
            return err_set(e, E_CANCELLED, "the server is shutting down");
        }
        if (clock_now_ms() > until) {
            return err_set(e, E_TIMEOUT, "the client stopped %s",
                           (what & POLLOUT) != 0 ? "reading" : "sending");
        }
        if ((what & POLLOUT) != 0 &&
            reader_rate_look(&s->rate, s->least, clock_now_ms(), true, s->sent_bytes)) {
            return err_set(e, E_TIMEOUT, "the client reads less than %u bytes per second",
                           (unsigned)s->least->bytes_per_s);
        }
        n = poll(&p, 1, TICK_MS);
        if (n > 0) {
            *got = p.revents;
            return 0;
        }
        if (n == -1 && errno != EINTR) {
            return err_sys(e, "poll");
        }
    }
}

static bool enough(const struct stream *s)
{
    return s->stepwise && s->data.n > 0 && mux_between(&s->mux);
}

static int unframe(struct stream *s, struct err *e)
{
    struct mux_piece piece;
    struct slice in = buf_slice(&s->raw);
    int rc = 0;

    buf_drop(&s->data, s->data_at);
    s->data_at = 0;
    if (s->bare) {
        buf_adds(&s->data, in);
        in = SLICE_NONE;
    }
    while (!enough(s) && (rc = mux_next(&s->mux, &in, &piece, e)) == 1) {
        if (piece.code == MUX_DATA) {
            buf_adds(&s->data, piece.bytes);
        } else if (piece.code == MUX_ERROR_EXIT) {
            return err_set(e, E_NETWORK, "the client aborted");
        }
    }
    buf_drop(&s->raw, s->raw.n - in.n);
    return rc < 0            ? rc
           : s->data.rc != 0 ? err_set(e, E_TOOBIG, "the client sent too much data")
                             : 0;
}

/* Bytes that are there, out of their frames. */
static int receive_stream_bytes(struct stream *s, struct err *e)
{
    char *room = buf_room(&s->raw, READ_BYTES);
    ssize_t got;

    CHECK(room != NULL);
    got = recv(s->fd, room, READ_BYTES, MSG_DONTWAIT);
    if (got == -1 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    if (got <= 0) {
        return err_set(e, E_NETWORK, "the client disconnected");
    }
    buf_grew(&s->raw, (size_t)got);
    s->received_bytes += (uint64_t)got;
    return s->framed ? unframe(s, e) : 0;
}

int stream_frame(struct stream *s, struct err *e)
{
    s->framed = s->framed_out = true;
    buf_adds(&s->out, buf_slice(&s->draft)); /* was said before */
    buf_clear(&s->draft);
    return unframe(s, e);
}

int stream_bare(struct stream *s, bool bare, struct err *e)
{
    CHECK(s->framed && s->stepwise);
    if (bare && (s->data.n > s->data_at || !mux_between(&s->mux))) {
        return err_set(e, E_PROTOCOL, "the client sent unexpected data");
    }
    s->bare = s->stepwise = bare;
    if (!bare) { /* what came behind it: frames again */
        CHECK(s->raw.n == 0);
        buf_adds(&s->raw, slice_from(buf_slice(&s->data), s->data_at));
        buf_clear(&s->data);
        s->data_at = 0;
    }
    return unframe(s, e);
}

/* --- reading ---------------------------------------------------------------------------------- */

static int more(struct stream *s, struct err *e)
{
    short got;
    int rc = stream_flush(s, e); /* whoever waits has said all */

    if (rc == 0 && s->framed && s->raw.n > 0) { /* of the next frame */
        rc = unframe(s, e);
        if (rc != 0 || s->data.n > s->data_at) {
            return rc;
        }
    }
    rc = rc != 0 ? rc : wait_for_stream(s, POLLIN, patience(s), &got, e);
    return rc != 0 ? rc : receive_stream_bytes(s, e);
}

int stream_line(struct stream *s, struct buf *line, struct err *e)
{
    ptrdiff_t end;
    int rc;

    CHECK(!s->framed);
    while ((end = slice_find(buf_slice(&s->raw), '\n')) < 0) {
        if (s->raw.n > line->max) {
            return err_set(e, E_TOOBIG, "the client sent a line that is too long");
        }
        rc = more(s, e);
        if (rc != 0) {
            return rc;
        }
    }
    buf_clear(line);
    buf_add(line, s->raw.p, (size_t)end);
    buf_drop(&s->raw, (size_t)end + 1);
    if (line->n > 0 && line->p[line->n - 1] == '\r') {
        line->n--;
    }
    return line->rc;
}

int stream_read(struct stream *s, void *p, size_t n, struct err *e)
{
    char *to = p;

    while (n > 0) {
        struct buf *from = s->framed ? &s->data : &s->raw;
        size_t at = s->framed ? s->data_at : 0;
        size_t some = from->n - at < n ? from->n - at : n;
        int rc;
        if (some == 0) {
            rc = more(s, e);
            if (rc != 0) {
                return rc;
            }
            continue;
        }
        if (to != NULL) {
            memcpy(to, from->p + at, some);
            to += some;
        }
        n -= some;
        if (!s->framed) {
            buf_drop(from, some);
        } else {
            s->data_at += some;
            if (s->data_at == s->data.n) {
                buf_clear(&s->data);
                s->data_at = 0;
            }
        }
    }
    return 0;
}

int stream_until(struct stream *s, char end, struct buf *to, uint64_t *left, struct err *e)
{
    CHECK(s->framed);
    buf_clear(to);
    for (;;) {
        struct slice there = slice_from(buf_slice(&s->data), s->data_at);
        ptrdiff_t at = slice_find(there, end);
        size_t n = at >= 0 ? (size_t)at + 1 : there.n;
        int rc;
        if (n > *left) {
            return err_set(e, E_TOOBIG, "the client sent too much data");
        }
        *left -= n;
        s->data_at += n;
        buf_adds(to, slice_first(there, at >= 0 ? (size_t)at : n));
        if (at >= 0) {
            return 0;
        }
        rc = more(s, e);
        if (rc != 0) {
            return rc;
        }
    }
}

int stream_skip(struct stream *s, uint64_t n, struct err *e)
{
    int rc = 0;

    while (n > 0 && rc == 0) {
        size_t some = (size_t)min_u64(n, 1 << 20);
        rc = stream_read(s, NULL, some, e);
        n -= some;
    }
    return rc;
}

/* A peer that says no more may still read, or have closed: a frame of nothing tells, whoever has
 * closed resets the connection. */
static void ask_whether_it_reads(struct stream *s)
{
    ssize_t sent;

    if (!s->framed_out) {
        return;
    }
    if (s->out.n == 0) {
        mux_put(&s->out, MUX_DATA, SLICE(""));
    }
    sent = send(s->fd, s->out.p, s->out.n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
        s->sent_bytes += (uint64_t)sent;
        buf_drop(&s->out, (size_t)sent);
    }
}

int stream_goes_on(struct stream *s, struct err *e)
{
    struct pollfd p = {.fd = s->fd, .events = POLLRDHUP};

    if (atomic_load(s->stop)) {
        return err_set(e, E_CANCELLED, "the server is shutting down");
    }
    if (poll(&p, 1, 0) == 1) {
        if ((p.revents & (POLLHUP | POLLERR)) != 0) {
            return err_set(e, E_NETWORK, "the client disconnected");
        }
        ask_whether_it_reads(s);
    }
    return s->deadline_ms != 0 && clock_now_ms() > s->deadline_ms
               ? err_set(e, E_TIMEOUT, "the client did not finish in time")
               : 0;
}

void stream_part(struct stream *s)
{
    uint64_t until = clock_now_ms() + PARTING_MS;
    short got;

    shutdown(s->fd, SHUT_WR);
    do {
        s->framed = false;
        buf_clear(&s->raw);
    } while (wait_for_stream(s, POLLIN, until, &got, NULL) == 0 &&
             receive_stream_bytes(s, NULL) == 0);
}

/* --- writing ---------------------------------------------------------------------------------- */

struct buf *stream_draft(struct stream *s)
{
    return &s->draft;
}

static void frame_draft(struct stream *s)
{
    if (s->draft.n == 0) {
        return;
    }
    if (s->framed_out) {
        mux_put(&s->out, MUX_DATA, buf_slice(&s->draft));
    } else {
        buf_adds(&s->out, buf_slice(&s->draft));
    }
    buf_clear(&s->draft);
}

void stream_message(struct stream *s, enum mux_code code, struct slice text)
{
    frame_draft(s);
    mux_put(&s->out, code, text);
}

/* How much of it may go now; 0 after a short wait. */
static size_t paced(struct stream *s, size_t want)
{
    for (size_t i = 0; i < ARRAY_LEN(s->pace); i++) {
        if (s->pace[i] != NULL) {
            want = (size_t)pace_allows(s->pace[i], want, clock_now_ms());
        }
        if (want == 0) {
            s->waits++;
            poll(NULL, 0, PACE_MS);
            return 0;
        }
    }
    return want;
}

static void charge(struct stream *s, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(s->pace); i++) {
        if (s->pace[i] != NULL) {
            pace_charge(s->pace[i], n, clock_now_ms());
        }
    }
    s->sent_bytes += n;
}

/* What comes meanwhile is read, and is no excuse: the client must take something before the wait is
 * over. */
static int wait_to_send(struct stream *s, uint64_t until, struct err *e)
{
    bool room = s->framed && s->data.n + s->raw.n < STREAM_AHEAD;
    short got = 0;
    int rc = wait_for_stream(s, room ? POLLOUT | POLLIN : POLLOUT, until, &got, e);

    return rc == 0 && (got & POLLIN) != 0 ? receive_stream_bytes(s, e) : rc;
}

/* *at: what went. */
static int send_from(struct stream *s, size_t *at, struct err *e)
{
    uint64_t until = 0; /* of the wait under way */

    while (*at < s->out.n) {
        size_t some = paced(s, s->out.n - *at);
        ssize_t sent;
        int rc;
        if (some == 0) {
            if (atomic_load(s->stop)) {
                return err_set(e, E_CANCELLED, "the server is shutting down");
            }
            continue;
        }
        sent = send(s->fd, s->out.p + *at, some, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            *at += (size_t)sent;
            charge(s, (size_t)sent);
            (void)reader_rate_look(&s->rate, s->least, clock_now_ms(), false, s->sent_bytes);
            until = 0;
            continue;
        }
        if (sent == -1 && errno != EAGAIN && errno != EINTR) {
            return err_set(e, E_NETWORK, "the client disconnected");
        }
        until = until != 0 ? until : patience(s);
        rc = wait_to_send(s, until, e);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int send_out(struct stream *s, struct err *e)
{
    size_t at = 0;
    int rc = send_from(s, &at, e);

    buf_drop(&s->out, at); /* the client reads the reason where it stood in the stream */
    return rc;
}

int stream_flush(struct stream *s, struct err *e)
{
    frame_draft(s);
    if (s->out.rc != 0 || s->draft.rc != 0) {
        return err_set(e, E_TOOBIG, "the response is too large for one message");
    }
    return send_out(s, e);
}

int stream_push(struct stream *s, struct err *e)
{
    return s->draft.n + s->out.n >= STREAM_OUT ? stream_flush(s, e) : 0;
}
