#include "agent/peers/guest.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/os/clock.h"
#include "common/os/newfile.h"

enum { RECORD_BYTES = 16 << 10, TURN_BYTES = 1 << 20, BITMAP_MAX = 4 << 20 };

enum phase { GREETS, ASKS, TAKES, LEAVES };

struct guest {
    struct list node;
    struct hall *hall;
    SSL *ssl;
    int fd;
    struct event *ready;
    short waits_for; /* EV_READ, EV_WRITE */
    enum phase phase;
    struct gift *gift;
    char in[GUEST_HEAD_MAX];
    size_t nin;
    struct buf out; /* head, and a body that is no chunk */
    size_t out_at;
    bool uploads; /* a chunk, which stands in file */
    int file;
    uint64_t at, end;
    bool closes;
    uint64_t since_ms; /* of what it should be done with in time */
    uint64_t since_bytes;
    uint64_t sent_bytes;
};

struct guest *guest_of(struct list *node)
{
    return LIST_ITEM(node, struct guest, node);
}

bool guest_knock(void *hall, SSL *ssl, struct slice identity, uint8_t key[PSK_KEY_BYTES])
{
    struct hall *h = hall;
    struct guest *g = SSL_get_app_data(ssl);

    gift_drop(&g->gift); /* a hello that was sent again */
    g->gift = gifts_find(h->gifts, identity, key);
    return g->gift != NULL;
}

/* --- what is asked ------------------------------------------------------------------------------------------------ */

static bool read_line(struct slice line, struct guest_request *out)
{
    struct slice path;

    if (!slice_eq(slice_cut(&line, ' '), SLICE("GET"))) {
        return false;
    }
    path = slice_cut(&line, ' ');
    if (!slice_eq(line, SLICE("HTTP/1.1")) || !slice_starts(path, SLICE("/"))) {
        return false;
    }
    path = slice_from(path, 1);
    out->digest_hex = slice_cut(&path, '/');
    out->have = slice_eq(path, SLICE("have"));
    return out->digest_hex.n == DIGEST_HEX && (out->have || slice_u64(path, &out->chunk));
}

/* Of the fields two matter: whether more requests come, and that no body does. */
static bool read_field(struct slice line, struct guest_request *out)
{
    struct slice name = slice_cut(&line, ':');
    struct slice value = slice_trim(line);

    if (name.n == 0 || slice_find(name, ' ') >= 0 || slice_ieq(name, SLICE("Transfer-Encoding")) ||
        (slice_ieq(name, SLICE("Content-Length")) && !slice_eq(value, SLICE("0")))) {
        return false;
    }
    out->closes =
        out->closes || (slice_ieq(name, SLICE("Connection")) && slice_ieq(value, SLICE("close")));
    return true;
}

bool guest_read(struct slice head, struct guest_request *out)
{
    bool first = true;

    *out = (struct guest_request){0};
    while (head.n > 0) {
        struct slice line = slice_cut(&head, '\n');
        if (!slice_ends(line, SLICE("\r")) ||
            slice_find(slice_first(line, line.n - 1), '\r') >= 0 || slice_find(line, '\0') >= 0) {
            return false;
        }
        line.n--;
        if (!(first ? read_line(line, out) : read_field(line, out))) {
            return false;
        }
        first = false;
    }
    return !first;
}

/* --- what is answered --------------------------------------------------------------------------------------------- */

static void say(struct guest *g, const char *status, size_t n)
{
    buf_clear(&g->out);
    buf_addf(
        &g->out,
        "HTTP/1.1 %s\r\nContent-Type: application/octet-stream\r\nContent-Length: %zu\r\n%s\r\n",
        status, n, g->closes ? "Connection: close\r\n" : "");
    g->out_at = 0;
}

static void refuse(struct guest *g, const char *status)
{
    say(g, status, 0);
}

static void give_bitmap(struct guest *g)
{
    struct buf bits = BUF_INIT(BITMAP_MAX);

    if (gift_bitmap(g->gift, &bits)) {
        say(g, "200 OK", bits.n);
        buf_adds(&g->out, buf_slice(&bits));
    } else {
        refuse(g, "404 Not Found");
    }
    buf_free(&bits);
}

static void give_chunk(struct guest *g, uint64_t chunk)
{
    struct hall *h = g->hall;
    size_t n;

    if (!gift_look(g->gift, chunk, &g->file, &g->at, &n)) {
        refuse(g, "404 Not Found");
    } else if (h->uploading >= h->uploads) {
        refuse(g, "503 Service Unavailable");
    } else {
        h->uploading++;
        g->uploads = true;
        g->end = g->at + n;
        say(g, "200 OK", n);
    }
}

static void answer(struct guest *g, struct slice head)
{
    struct guest_request r;

    if (!guest_read(head, &r) || !slice_eqs(r.digest_hex, gift_hex(g->gift))) {
        g->closes = true;
        refuse(g, "400 Bad Request");
        return;
    }
    g->closes = r.closes;
    if (r.have) {
        give_bitmap(g);
    } else {
        give_chunk(g, r.chunk);
    }
}

/* --- the steps: each true when there may be more to do at once -------------------------------------------------------- */

static void enter(struct guest *g, enum phase phase)
{
    g->phase = phase;
    g->since_ms = clock_now_ms();
    g->since_bytes = g->sent_bytes;
}

/* What an SSL_*() that did not go through waits for; false: it is over. */
static bool waits(struct guest *g, int rc)
{
    int why = SSL_get_error(g->ssl, rc);

    ERR_clear_error(); /* the queue is the thread's */
    g->waits_for = why == SSL_ERROR_WANT_WRITE ? EV_WRITE : EV_READ;
    if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) {
        g->phase = LEAVES;
    }
    return false;
}

static bool greet(struct guest *g)
{
    int rc = SSL_accept(g->ssl);

    if (rc != 1) {
        return waits(g, rc);
    }
    if (g->gift == NULL) {
        g->phase = LEAVES; /* cannot be: without a key there is no handshake */
        return false;
    }
    enter(g, ASKS);
    return true;
}

static bool take_request(struct guest *g)
{
    const char *end = memmem(g->in, g->nin, "\r\n\r\n", 4);
    size_t n;

    if (end == NULL) {
        if (g->nin == sizeof g->in) {
            g->phase = LEAVES;
        }
        return false;
    }
    n = (size_t)(end - g->in) + 4;
    answer(g, slice_of(g->in, n - 2));
    memmove(g->in, g->in + n, g->nin - n);
    g->nin -= n;
    enter(g, TAKES);
    return true;
}

static bool hear(struct guest *g)
{
    int rc;

    if (take_request(g)) {
        return true;
    }
    if (g->phase == LEAVES) {
        return false;
    }
    rc = SSL_read(g->ssl, g->in + g->nin, (int)(sizeof g->in - g->nin));
    if (rc <= 0) {
        return waits(g, rc);
    }
    if (g->nin == 0) {
        enter(g, ASKS); /* from here on it is in haste */
    }
    g->nin += (size_t)rc;
    return true;
}

static bool write_out(struct guest *g, const char *p, size_t n, size_t *wrote)
{
    int rc = SSL_write(g->ssl, p, (int)min_u64(n, RECORD_BYTES));

    *wrote = rc > 0 ? (size_t)rc : 0;
    g->sent_bytes += *wrote;
    return rc > 0 || waits(g, rc);
}

static bool send_file(struct guest *g)
{
    struct hall *h = g->hall;
    size_t n = (size_t)min_u64(GUEST_SCRATCH, g->end - g->at);
    size_t done = 0;
    bool on = true;

    if (fd_pread_all(g->file, h->scratch, n, g->at, NULL) != 0) {
        g->phase = LEAVES;
        return false;
    }
    while (on && done < n) {
        size_t wrote;
        on = write_out(g, h->scratch + done, n - done, &wrote);
        done += wrote;
    }
    g->at += done;
    h->given_bytes += done;
    return on;
}

static bool send_on(struct guest *g)
{
    size_t wrote;

    if (g->out_at < g->out.n) {
        bool on = write_out(g, g->out.p + g->out_at, g->out.n - g->out_at, &wrote);
        g->out_at += wrote;
        return on;
    }
    if (g->uploads && g->at < g->end) {
        return send_file(g);
    }
    if (g->uploads) {
        g->uploads = false;
        g->hall->uploading--;
    }
    if (g->closes) {
        SSL_shutdown(g->ssl);
        g->phase = LEAVES;
        return false;
    }
    enter(g, ASKS);
    return true;
}

static bool step(struct guest *g)
{
    switch (g->phase) {
    case GREETS:
        return greet(g);
    case ASKS:
        return hear(g);
    case TAKES:
        return send_on(g);
    case LEAVES:
        break;
    }
    return false;
}

static void on_ready(evutil_socket_t fd, short what, void *arg)
{
    struct guest *g = arg;
    uint64_t from = g->sent_bytes;
    bool on = true;

    (void)what;
    while (on && g->sent_bytes - from < TURN_BYTES) {
        on = step(g);
    }
    if (g->phase == LEAVES) {
        guest_close(g);
        return;
    }
    /* The others' turn, when it could go on: a socket that takes more is ready at once. */
    event_assign(g->ready, g->hall->base, fd, on ? EV_WRITE : g->waits_for, on_ready, g);
    CHECK(event_add(g->ready, NULL) == 0);
}

/* --- coming and going ----------------------------------------------------------------------------------------------- */

void guest_open(struct hall *h, int fd, uint64_t now_ms)
{
    struct guest *g = NEW(struct guest);

    g->hall = h;
    g->fd = fd;
    g->file = -1;
    g->since_ms = now_ms;
    g->out = BUF_INIT(BITMAP_MAX + 1024);
    g->ssl = SSL_new(h->tls);
    CHECK(g->ssl != NULL && SSL_set_fd(g->ssl, fd) == 1);
    SSL_set_app_data(g->ssl, g);
    SSL_set_accept_state(g->ssl);
    g->ready = event_new(h->base, fd, EV_READ, on_ready, g);
    CHECK(g->ready != NULL && event_add(g->ready, NULL) == 0);
    list_push_back(&h->guests, &g->node);
    h->nguests++;
}

void guest_close(struct guest *g)
{
    struct hall *h = g->hall;

    list_remove(&g->node);
    h->nguests--;
    h->uploading -= g->uploads;
    event_free(g->ready);
    SSL_free(g->ssl);
    close(g->fd);
    gift_drop(&g->gift);
    buf_free(&g->out);
    free(g);
}

bool guest_is_late(struct guest *g, uint64_t now_ms)
{
    uint64_t waited_ms = now_ms > g->since_ms ? now_ms - g->since_ms : 0;

    switch (g->phase) {
    case GREETS:
        return waited_ms > GUEST_HASTE_MS;
    case ASKS:
        return waited_ms > (g->nin == 0 ? GUEST_IDLE_MS : GUEST_HASTE_MS);
    case TAKES:
        if (waited_ms <= GUEST_HASTE_MS) {
            return false;
        }
        if (g->sent_bytes - g->since_bytes < GUEST_SPEED_BYTES) {
            return true;
        }
        enter(g, TAKES);
        return false;
    case LEAVES:
        break;
    }
    return true;
}
