#include "agent/peers/give.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/peers/bits.h"
#include "common/base/list.h"
#include "common/hash/digest.h"
#include "common/os/clock.h"
#include "common/os/lock.h"
#include "common/os/newfile.h"
#include "common/xfer/psk.h"

enum {
    GUEST_HEAD_MAX = 1024,
    GUEST_HASTE_MS = 10000,
    GUEST_IDLE_MS = 30000,
    GUEST_SPEED_BYTES = 64 << 10,
    GUEST_SCRATCH = 128 << 10,
};

/* --- what this process gives to others: files by digest, of each the chunks that are verified and written.
 *
 * A pull offers its partial file and says of each chunk when it is there; the giving thread finds it by its digest and sends from the
 * open file, which stays the same one when it gets its name on the shelf. One that is withdrawn begins nothing from then on, for those
 * who hold it either; a chunk that is on its way goes on.
 *
 * owns     counted: gifts_offer() and gifts_find() give a reference each, gift_drop() takes one; the file is a duplicate of the pull's
 * threads  any, all of it: LOCK_GIFTS */

struct gifts {
    struct lock lock; /* over all gifts, too */
    struct list all;
};

struct gift {
    struct list node; /* of no list once it is withdrawn */
    struct gifts *gifts;
    unsigned refs;
    char hex[DIGEST_HEX + 1];
    uint64_t size_bytes;
    size_t count;
    int fd;
    bool keyed;
    bool withdrawn;
    uint8_t key[PSK_KEY_BYTES];
    uint8_t *bits;
};

struct gifts *gifts_open(void)
{
    struct gifts *g = NEW(struct gifts);

    lock_init(&g->lock, LOCK_GIFTS);
    list_init(&g->all);
    return g;
}

void gifts_close(struct gifts **gp)
{
    struct gifts *g = *gp;

    if (g != NULL) {
        *gp = NULL;
        CHECK(list_empty(&g->all));
        lock_fini(&g->lock);
        free(g);
    }
}

int gifts_offer(struct gifts *g, const struct digest *d, uint64_t size_bytes, int fd,
                struct gift **out, struct err *e)
{
    struct gift *x;
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    *out = NULL;
    if (own == -1) {
        return err_sys(e, "dup");
    }
    x = NEW(struct gift);
    x->gifts = g;
    x->refs = 1;
    x->fd = own;
    x->size_bytes = size_bytes;
    x->count = (size_t)((size_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES);
    x->bits = mem_array(BITS_BYTES(x->count) + 1, 1);
    digest_format(d, x->hex);
    lock_take(&g->lock);
    list_push_back(&g->all, &x->node);
    lock_drop(&g->lock);
    *out = x;
    return 0;
}

void gift_key(struct gift *x, const uint8_t key[PSK_KEY_BYTES])
{
    lock_take(&x->gifts->lock);
    memcpy(x->key, key, sizeof x->key);
    x->keyed = true;
    lock_drop(&x->gifts->lock);
}

void gift_chunk(struct gift *x, size_t i, bool there)
{
    CHECK(i < x->count);
    lock_take(&x->gifts->lock);
    bits_set(x->bits, i, there);
    lock_drop(&x->gifts->lock);
}

void gift_withdraw(struct gift *x)
{
    lock_take(&x->gifts->lock);
    x->withdrawn = true;
    list_remove_if(&x->node);
    lock_drop(&x->gifts->lock);
}

void gift_drop(struct gift **xp)
{
    struct gift *x = *xp;
    struct gifts *g;
    bool last;

    if (x == NULL) {
        return;
    }
    *xp = NULL;
    g = x->gifts;
    lock_take(&g->lock);
    last = --x->refs == 0;
    if (last) {
        list_remove_if(&x->node);
    }
    lock_drop(&g->lock);
    if (last) {
        close(x->fd);
        OPENSSL_cleanse(x->key, sizeof x->key);
        free(x->bits);
        free(x);
    }
}

static struct gift *gifts_find(struct gifts *g, struct slice digest_hex, uint8_t key[PSK_KEY_BYTES])
{
    struct gift *found = NULL;

    lock_take(&g->lock);
    LIST_EACH (&g->all, n) {
        struct gift *x = LIST_ITEM(n, struct gift, node);
        if (found == NULL && x->keyed && slice_eqs(digest_hex, x->hex)) {
            found = x;
            x->refs++;
            memcpy(key, x->key, sizeof x->key);
        }
    }
    lock_drop(&g->lock);
    return found;
}

static const char *gift_hex(const struct gift *x)
{
    return x->hex;
}

static bool gift_bitmap(struct gift *x, struct buf *out)
{
    bool ok;

    lock_take(&x->gifts->lock);
    ok = !x->withdrawn;
    if (ok) {
        buf_add(out, x->bits, BITS_BYTES(x->count));
    }
    lock_drop(&x->gifts->lock);
    return ok;
}

static bool gift_look(struct gift *x, uint64_t i, int *fd, uint64_t *at, size_t *n)
{
    bool ok;

    lock_take(&x->gifts->lock);
    ok = !x->withdrawn && i < x->count && bits_get(x->bits, (size_t)i);
    lock_drop(&x->gifts->lock);
    if (ok) {
        *fd = x->fd;
        *at = i * CHUNK_BYTES;
        *n = (size_t)min_u64(CHUNK_BYTES, x->size_bytes - *at);
    }
    return ok;
}

struct hall { /* what all guests share */
    struct event_base *base;
    struct ssl_ctx_st *tls;
    struct gifts *gifts;
    struct list guests;
    unsigned nguests;
    unsigned uploads;   /* chunks that may be under way */
    unsigned uploading; /* chunks that are */
    char *scratch;      /* GUEST_SCRATCH */
    uint64_t given_bytes;
};

/* --- one connection of another node that takes from us: HTTP/1.1 over TLS with the key of what it asks for (psk.h).
 *
 *   GET /<sha256>/have      200, the bitmap
 *   GET /<sha256>/<chunk>   200, Content-Length and the chunk; 404: it is not here; 503: all places are taken
 *   anything else           400 and the end
 *
 * Its key names the one file that it may ask for. One request at a time; what comes behind it waits. A head is at most
 * GUEST_HEAD_MAX bytes, the handshake and each request must be over in GUEST_HASTE_MS, a kept connection asks again in
 * GUEST_IDLE_MS, and who reads less than GUEST_SPEED_BYTES in GUEST_HASTE_MS is let go. */

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

static bool guest_knock(void *hall, SSL *ssl, struct slice identity, uint8_t key[PSK_KEY_BYTES])
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

static void guest_close(struct guest *g);

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

static void guest_open(struct hall *h, int fd, uint64_t now_ms)
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

static void guest_close(struct guest *g)
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

static bool guest_is_late(struct guest *g, uint64_t now_ms)
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

/* --- the thread that listens --- */

enum { SWEEP_MS = 1000 };

struct give {
    struct hall hall;
    pthread_t thread;
    int fd;
    int stop; /* eventfd */
    uint16_t port;
    struct event *on_guest;
    struct event *on_stop;
    struct event *on_sweep;
};

static void arrive(evutil_socket_t fd, short what, void *arg)
{
    struct give *g = arg;
    const int on = 1;
    int guest;

    (void)what;
    while ((guest = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) != -1) {
        if (g->hall.nguests >= GIVE_GUESTS) {
            close(guest);
            continue;
        }
        setsockopt(guest, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        guest_open(&g->hall, guest, clock_now_ms());
    }
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        event_del(
            g->on_guest); /* no descriptor is left: those who wait are asked in with the next sweep */
    }
}

static void sweep(evutil_socket_t fd, short what, void *arg)
{
    struct give *g = arg;
    uint64_t now_ms = clock_now_ms();

    (void)fd;
    (void)what;
    LIST_EACH (&g->hall.guests, n) {
        if (guest_is_late(LIST_ITEM(n, struct guest, node), now_ms)) {
            guest_close(LIST_ITEM(n, struct guest, node));
        }
    }
    event_add(g->on_guest, NULL);
}

static void stop(evutil_socket_t fd, short what, void *arg)
{
    struct give *g = arg;

    (void)fd;
    (void)what;
    event_base_loopbreak(g->hall.base);
}

static void *run(void *arg)
{
    struct give *g = arg;

    event_base_dispatch(g->hall.base);
    LIST_EACH (&g->hall.guests, n) {
        guest_close(LIST_ITEM(n, struct guest, node));
    }
    return NULL;
}

/* "::" is IPv4's, too; a kernel without IPv6 has that alone. */
static int open_socket(const char *address, bool *is4)
{
    const int off = 0;
    int fd = -1;

    if (!*is4) {
        fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        *is4 = fd == -1 && errno == EAFNOSUPPORT && strcmp(address, "::") == 0;
    }
    if (*is4) {
        return socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    }
    if (fd != -1) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    return fd;
}

static int listen_at(const char *address, uint16_t port, int *out, uint16_t *got, struct err *e)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    bool is4 = inet_pton(AF_INET, address, &v4.sin_addr) == 1;
    const struct sockaddr *at;
    struct sockaddr_in6 bound;
    socklen_t nbound = sizeof bound;
    const int on = 1;
    int fd;

    if (!is4 && inet_pton(AF_INET6, address, &v6.sin6_addr) != 1) {
        return err_set(e, E_CONFIG, "peers: address \"%.60s\" is none; write one such as 10.0.0.7",
                       address);
    }
    fd = open_socket(address, &is4);
    if (fd == -1) {
        return err_sys(e, "socket");
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    at = is4 ? (const struct sockaddr *)&v4 : (const struct sockaddr *)&v6;
    if (bind(fd, at, is4 ? sizeof v4 : sizeof v6) == -1 || listen(fd, 128) == -1 ||
        getsockname(fd, (struct sockaddr *)&bound, &nbound) == -1) {
        int rc = err_sys(e, "%s port %u", address, port);
        close(fd);
        return rc;
    }
    *got = ntohs(bound.sin6_port); /* the same place as sin_port */
    *out = fd;
    return 0;
}

int give_open(struct gifts *gifts, const char *address, uint16_t port, unsigned uploads,
              struct give **out, struct err *e)
{
    const struct timeval every = {SWEEP_MS / 1000, SWEEP_MS % 1000 * 1000};
    struct give *g;
    uint16_t got = 0;
    int fd = -1;
    int rc = listen_at(address, port, &fd, &got, e);

    *out = NULL;
    if (rc != 0) {
        return rc;
    }
    g = NEW(struct give);
    g->fd = fd;
    g->port = got;
    g->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    g->hall.base = event_base_new();
    CHECK(g->stop != -1 && g->hall.base != NULL);
    g->hall.gifts = gifts;
    g->hall.uploads = uploads;
    g->hall.scratch = mem_new(GUEST_SCRATCH);
    g->hall.tls = psk_server(guest_knock, &g->hall);
    list_init(&g->hall.guests);
    g->on_guest = event_new(g->hall.base, fd, EV_READ | EV_PERSIST, arrive, g);
    g->on_stop = event_new(g->hall.base, g->stop, EV_READ, stop, g);
    g->on_sweep = event_new(g->hall.base, -1, EV_PERSIST, sweep, g);
    CHECK(g->on_guest != NULL && g->on_stop != NULL && g->on_sweep != NULL);
    CHECK(event_add(g->on_guest, NULL) == 0 && event_add(g->on_stop, NULL) == 0 &&
          event_add(g->on_sweep, &every) == 0);
    g->thread = thread_start("give", run, g);
    *out = g;
    return 0;
}

uint16_t give_port(const struct give *g)
{
    return g->port;
}

void give_close(struct give **gp)
{
    struct give *g = *gp;

    if (g == NULL) {
        return;
    }
    *gp = NULL;
    CHECK(eventfd_write(g->stop, 1) == 0);
    CHECK(pthread_join(g->thread, NULL) == 0);
    event_free(g->on_guest);
    event_free(g->on_stop);
    event_free(g->on_sweep);
    event_base_free(g->hall.base);
    SSL_CTX_free(g->hall.tls);
    close(g->fd);
    close(g->stop);
    free(g->hall.scratch);
    free(g);
}
