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
    INBOUND_PEER_HEAD_MAX = 1024,
    INBOUND_PEER_HASTE_MS = 10000,
    INBOUND_PEER_IDLE_MS = 30000,
    INBOUND_PEER_SPEED_BYTES = 64 << 10,
    INBOUND_PEER_SCRATCH = 128 << 10,
};

/* --- what this process gives to others: files by digest, of each the chunks that are verified and
 * written.
 *
 * A pull offers its partial file and says of each chunk when it is there; the giving thread finds
 * it by its digest and sends from the open file, which stays the same one when it gets its name on
 * the local cache. One that is withdrawn begins nothing from then on, for those who hold it either;
 * a chunk that is on its way goes on.
 *
 * owns     counted: shared_files_offer() and shared_files_find() give a reference each,
 *          shared_file_drop() takes one; the file is a duplicate of the pull's
 * threads  any, all of it: LOCK_SHARED_FILES */

struct shared_files {
    struct lock lock; /* over all shared files, too */
    struct list all;
};

struct shared_file {
    struct list node; /* of no list once it is withdrawn */
    struct shared_files *shared_files;
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

struct shared_files *shared_files_open(void)
{
    struct shared_files *g = NEW(struct shared_files);

    lock_init(&g->lock, LOCK_SHARED_FILES);
    list_init(&g->all);
    return g;
}

void shared_files_close(struct shared_files **gp)
{
    struct shared_files *g = *gp;

    if (g != NULL) {
        *gp = NULL;
        CHECK(list_empty(&g->all));
        lock_fini(&g->lock);
        free(g);
    }
}

int shared_files_offer(struct shared_files *g, const struct digest *d, uint64_t size_bytes, int fd,
                       struct shared_file **out, struct err *e)
{
    struct shared_file *x;
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    *out = NULL;
    if (own == -1) {
        return err_sys(e, "dup");
    }
    x = NEW(struct shared_file);
    x->shared_files = g;
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

void shared_file_key(struct shared_file *x, const uint8_t key[PSK_KEY_BYTES])
{
    lock_take(&x->shared_files->lock);
    memcpy(x->key, key, sizeof x->key);
    x->keyed = true;
    lock_drop(&x->shared_files->lock);
}

void shared_file_chunk(struct shared_file *x, size_t i, bool there)
{
    CHECK(i < x->count);
    lock_take(&x->shared_files->lock);
    bits_set(x->bits, i, there);
    lock_drop(&x->shared_files->lock);
}

void shared_file_withdraw(struct shared_file *x)
{
    lock_take(&x->shared_files->lock);
    x->withdrawn = true;
    list_remove_if(&x->node);
    lock_drop(&x->shared_files->lock);
}

void shared_file_drop(struct shared_file **xp)
{
    struct shared_file *x = *xp;
    struct shared_files *g;
    bool last;

    if (x == NULL) {
        return;
    }
    *xp = NULL;
    g = x->shared_files;
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

static struct shared_file *shared_files_find(struct shared_files *g, struct slice digest_hex,
                                             uint8_t key[PSK_KEY_BYTES])
{
    struct shared_file *found = NULL;

    lock_take(&g->lock);
    LIST_EACH (&g->all, n) {
        struct shared_file *x = LIST_ITEM(n, struct shared_file, node);
        if (found == NULL && x->keyed && slice_eqs(digest_hex, x->hex)) {
            found = x;
            x->refs++;
            memcpy(key, x->key, sizeof x->key);
        }
    }
    lock_drop(&g->lock);
    return found;
}

static const char *shared_file_hex(const struct shared_file *x)
{
    return x->hex;
}

static bool shared_file_bitmap(struct shared_file *x, struct buf *out)
{
    bool ok;

    lock_take(&x->shared_files->lock);
    ok = !x->withdrawn;
    if (ok) {
        buf_add(out, x->bits, BITS_BYTES(x->count));
    }
    lock_drop(&x->shared_files->lock);
    return ok;
}

static bool shared_file_look(struct shared_file *x, uint64_t i, int *fd, uint64_t *at, size_t *n)
{
    bool ok;

    lock_take(&x->shared_files->lock);
    ok = !x->withdrawn && i < x->count && bits_get(x->bits, (size_t)i);
    lock_drop(&x->shared_files->lock);
    if (ok) {
        *fd = x->fd;
        *at = i * CHUNK_BYTES;
        *n = (size_t)min_u64(CHUNK_BYTES, x->size_bytes - *at);
    }
    return ok;
}

struct hall { /* what all inbound peers share */
    struct event_base *base;
    struct ssl_ctx_st *tls;
    struct shared_files *shared_files;
    struct list inbound_peers;
    unsigned nguests;
    unsigned uploads;   /* chunks that may be under way */
    unsigned uploading; /* chunks that are */
    char *scratch;      /* INBOUND_PEER_SCRATCH */
    uint64_t given_bytes;
};

/* --- one connection of another node that takes from us: HTTP/1.1 over TLS with the key of what it
 * asks for (psk.h).
 *
 *   GET /<sha256>/have      200, the bitmap
 *   GET /<sha256>/<chunk>   200, Content-Length and the chunk; 404: it is not here; 503:
 *                           all places are taken
 *   anything else           400 and the end
 *
 * Its key names the one file that it may ask for. One request at a time; what comes behind it
 * waits. A head is at most INBOUND_PEER_HEAD_MAX bytes, the handshake and each request must be over
 * in INBOUND_PEER_HASTE_MS, a kept connection asks again in INBOUND_PEER_IDLE_MS, and who reads
 * less than INBOUND_PEER_SPEED_BYTES in INBOUND_PEER_HASTE_MS is let go. */

enum { RECORD_BYTES = 16 << 10, TURN_BYTES = 1 << 20, BITMAP_MAX = 4 << 20 };

enum phase { GREETS, ASKS, TAKES, LEAVES };

struct inbound_peer {
    struct list node;
    struct hall *hall;
    SSL *ssl;
    int fd;
    struct event *ready;
    short waits_for; /* EV_READ, EV_WRITE */
    enum phase phase;
    struct shared_file *shared_file;
    char in[INBOUND_PEER_HEAD_MAX];
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

static bool inbound_peer_knock(void *hall, SSL *ssl, struct slice identity,
                               uint8_t key[PSK_KEY_BYTES])
{
    struct hall *h = hall;
    struct inbound_peer *g = SSL_get_app_data(ssl);

    shared_file_drop(&g->shared_file); /* a hello that was sent again */
    g->shared_file = shared_files_find(h->shared_files, identity, key);
    return g->shared_file != NULL;
}

/* --- what is asked ---------------------------------------------------------------------------- */

static bool read_request_line(struct slice line, struct inbound_peer_request *out)
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
static bool read_field(struct slice line, struct inbound_peer_request *out)
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

bool inbound_peer_read(struct slice head, struct inbound_peer_request *out)
{
    bool first = true;

    *out = (struct inbound_peer_request){0};
    while (head.n > 0) {
        struct slice line = slice_cut(&head, '\n');
        if (!slice_ends(line, SLICE("\r")) ||
            slice_find(slice_first(line, line.n - 1), '\r') >= 0 || slice_find(line, '\0') >= 0) {
            return false;
        }
        line.n--;
        if (!(first ? read_request_line(line, out) : read_field(line, out))) {
            return false;
        }
        first = false;
    }
    return !first;
}

/* --- what is answered ------------------------------------------------------------------------- */

static void put_peer_status(struct inbound_peer *g, const char *status, size_t n)
{
    buf_clear(&g->out);
    buf_addf(
        &g->out,
        "HTTP/1.1 %s\r\nContent-Type: application/octet-stream\r\nContent-Length: %zu\r\n%s\r\n",
        status, n, g->closes ? "Connection: close\r\n" : "");
    g->out_at = 0;
}

static void refuse_inbound_peer(struct inbound_peer *g, const char *status)
{
    put_peer_status(g, status, 0);
}

static void give_bitmap(struct inbound_peer *g)
{
    struct buf bits = BUF_INIT(BITMAP_MAX);

    if (shared_file_bitmap(g->shared_file, &bits)) {
        put_peer_status(g, "200 OK", bits.n);
        buf_adds(&g->out, buf_slice(&bits));
    } else {
        refuse_inbound_peer(g, "404 Not Found");
    }
    buf_free(&bits);
}

static void give_chunk(struct inbound_peer *g, uint64_t chunk)
{
    struct hall *h = g->hall;
    size_t n;

    if (!shared_file_look(g->shared_file, chunk, &g->file, &g->at, &n)) {
        refuse_inbound_peer(g, "404 Not Found");
    } else if (h->uploading >= h->uploads) {
        refuse_inbound_peer(g, "503 Service Unavailable");
    } else {
        h->uploading++;
        g->uploads = true;
        g->end = g->at + n;
        put_peer_status(g, "200 OK", n);
    }
}

static void answer_peer_request(struct inbound_peer *g, struct slice head)
{
    struct inbound_peer_request r;

    if (!inbound_peer_read(head, &r) || !slice_eqs(r.digest_hex, shared_file_hex(g->shared_file))) {
        g->closes = true;
        refuse_inbound_peer(g, "400 Bad Request");
        return;
    }
    g->closes = r.closes;
    if (r.have) {
        give_bitmap(g);
    } else {
        give_chunk(g, r.chunk);
    }
}

/* --- the steps: each true when there may be more to do at once -------------------------------- */

static void enter_peer_phase(struct inbound_peer *g, enum phase phase)
{
    g->phase = phase;
    g->since_ms = clock_now_ms();
    g->since_bytes = g->sent_bytes;
}

/* What an SSL_*() that did not go through waits for; false: it is over. */
static bool waits(struct inbound_peer *g, int rc)
{
    int why = SSL_get_error(g->ssl, rc);

    ERR_clear_error(); /* the queue is the thread's */
    g->waits_for = why == SSL_ERROR_WANT_WRITE ? EV_WRITE : EV_READ;
    if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) {
        g->phase = LEAVES;
    }
    return false;
}

static bool accept_inbound_peer(struct inbound_peer *g)
{
    int rc = SSL_accept(g->ssl);

    if (rc != 1) {
        return waits(g, rc);
    }
    if (g->shared_file == NULL) {
        g->phase = LEAVES; /* cannot be: without a key there is no handshake */
        return false;
    }
    enter_peer_phase(g, ASKS);
    return true;
}

static bool take_request(struct inbound_peer *g)
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
    answer_peer_request(g, slice_of(g->in, n - 2));
    memmove(g->in, g->in + n, g->nin - n);
    g->nin -= n;
    enter_peer_phase(g, TAKES);
    return true;
}

static bool receive_peer_bytes(struct inbound_peer *g)
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
        enter_peer_phase(g, ASKS); /* from here on it is in haste */
    }
    g->nin += (size_t)rc;
    return true;
}

static bool write_to_peer(struct inbound_peer *g, const char *p, size_t n, size_t *wrote)
{
    int rc = SSL_write(g->ssl, p, (int)min_u64(n, RECORD_BYTES));

    *wrote = rc > 0 ? (size_t)rc : 0;
    g->sent_bytes += *wrote;
    return rc > 0 || waits(g, rc);
}

static bool send_file_to_peer(struct inbound_peer *g)
{
    struct hall *h = g->hall;
    size_t n = (size_t)min_u64(INBOUND_PEER_SCRATCH, g->end - g->at);
    size_t done = 0;
    bool on = true;

    if (fd_pread_all(g->file, h->scratch, n, g->at, NULL) != 0) {
        g->phase = LEAVES;
        return false;
    }
    while (on && done < n) {
        size_t wrote;
        on = write_to_peer(g, h->scratch + done, n - done, &wrote);
        done += wrote;
    }
    g->at += done;
    h->given_bytes += done;
    return on;
}

static bool send_on(struct inbound_peer *g)
{
    size_t wrote;

    if (g->out_at < g->out.n) {
        bool on = write_to_peer(g, g->out.p + g->out_at, g->out.n - g->out_at, &wrote);
        g->out_at += wrote;
        return on;
    }
    if (g->uploads && g->at < g->end) {
        return send_file_to_peer(g);
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
    enter_peer_phase(g, ASKS);
    return true;
}

static bool step_inbound_peer(struct inbound_peer *g)
{
    switch (g->phase) {
    case GREETS:
        return accept_inbound_peer(g);
    case ASKS:
        return receive_peer_bytes(g);
    case TAKES:
        return send_on(g);
    case LEAVES:
        break;
    }
    return false;
}

static void inbound_peer_close(struct inbound_peer *g);

static void on_ready(evutil_socket_t fd, short what, void *arg)
{
    struct inbound_peer *g = arg;
    uint64_t from = g->sent_bytes;
    bool on = true;

    (void)what;
    while (on && g->sent_bytes - from < TURN_BYTES) {
        on = step_inbound_peer(g);
    }
    if (g->phase == LEAVES) {
        inbound_peer_close(g);
        return;
    }
    /* The others' turn, when it could go on: a socket that takes more is ready at once. */
    event_assign(g->ready, g->hall->base, fd, on ? EV_WRITE : g->waits_for, on_ready, g);
    CHECK(event_add(g->ready, NULL) == 0);
}

/* --- coming and going ------------------------------------------------------------------------- */

static void inbound_peer_open(struct hall *h, int fd, uint64_t now_ms)
{
    struct inbound_peer *g = NEW(struct inbound_peer);

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
    list_push_back(&h->inbound_peers, &g->node);
    h->nguests++;
}

static void inbound_peer_close(struct inbound_peer *g)
{
    struct hall *h = g->hall;

    list_remove(&g->node);
    h->nguests--;
    h->uploading -= g->uploads;
    event_free(g->ready);
    SSL_free(g->ssl);
    close(g->fd);
    shared_file_drop(&g->shared_file);
    buf_free(&g->out);
    free(g);
}

static bool inbound_peer_is_late(struct inbound_peer *g, uint64_t now_ms)
{
    uint64_t waited_ms = now_ms > g->since_ms ? now_ms - g->since_ms : 0;

    switch (g->phase) {
    case GREETS:
        return waited_ms > INBOUND_PEER_HASTE_MS;
    case ASKS:
        return waited_ms > (g->nin == 0 ? INBOUND_PEER_IDLE_MS : INBOUND_PEER_HASTE_MS);
    case TAKES:
        if (waited_ms <= INBOUND_PEER_HASTE_MS) {
            return false;
        }
        if (g->sent_bytes - g->since_bytes < INBOUND_PEER_SPEED_BYTES) {
            return true;
        }
        enter_peer_phase(g, TAKES);
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
    struct event *on_inbound_peer;
    struct event *on_stop;
    struct event *on_sweep;
};

static void arrive(evutil_socket_t fd, short what, void *arg)
{
    struct give *g = arg;
    const int on = 1;
    int inbound_peer;

    (void)what;
    while ((inbound_peer = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) != -1) {
        if (g->hall.nguests >= GIVE_INBOUND_PEERS) {
            close(inbound_peer);
            continue;
        }
        setsockopt(inbound_peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        inbound_peer_open(&g->hall, inbound_peer, clock_now_ms());
    }
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        /* No descriptor is left: waiting connections are accepted at the next sweep. */
        event_del(g->on_inbound_peer);
    }
}

static void sweep_inbound_peers(evutil_socket_t fd, short what, void *arg)
{
    struct give *g = arg;
    uint64_t now_ms = clock_now_ms();

    (void)fd;
    (void)what;
    LIST_EACH (&g->hall.inbound_peers, n) {
        if (inbound_peer_is_late(LIST_ITEM(n, struct inbound_peer, node), now_ms)) {
            inbound_peer_close(LIST_ITEM(n, struct inbound_peer, node));
        }
    }
    event_add(g->on_inbound_peer, NULL);
}

static void stop_peer_server(evutil_socket_t fd, short what, void *arg)
{
    struct give *g = arg;

    (void)fd;
    (void)what;
    event_base_loopbreak(g->hall.base);
}

static void *run_peer_server(void *arg)
{
    struct give *g = arg;

    event_base_dispatch(g->hall.base);
    LIST_EACH (&g->hall.inbound_peers, n) {
        inbound_peer_close(LIST_ITEM(n, struct inbound_peer, node));
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
        return err_set(e, E_CONFIG,
                       "peers: \"%.60s\" is not an IP address; write one such as 10.0.0.7",
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
        int rc = err_sys(e, "cannot listen on %s port %u", address, port);
        close(fd);
        return rc;
    }
    *got = ntohs(bound.sin6_port); /* the same place as sin_port */
    *out = fd;
    return 0;
}

int give_open(struct shared_files *shared_files, const char *address, uint16_t port,
              unsigned uploads, struct give **out, struct err *e)
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
    g->hall.shared_files = shared_files;
    g->hall.uploads = uploads;
    g->hall.scratch = mem_new(INBOUND_PEER_SCRATCH);
    g->hall.tls = psk_server(inbound_peer_knock, &g->hall);
    list_init(&g->hall.inbound_peers);
    g->on_inbound_peer = event_new(g->hall.base, fd, EV_READ | EV_PERSIST, arrive, g);
    g->on_stop = event_new(g->hall.base, g->stop, EV_READ, stop_peer_server, g);
    g->on_sweep = event_new(g->hall.base, -1, EV_PERSIST, sweep_inbound_peers, g);
    CHECK(g->on_inbound_peer != NULL && g->on_stop != NULL && g->on_sweep != NULL);
    CHECK(event_add(g->on_inbound_peer, NULL) == 0 && event_add(g->on_stop, NULL) == 0 &&
          event_add(g->on_sweep, &every) == 0);
    g->thread = thread_start("give", run_peer_server, g);
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
    event_free(g->on_inbound_peer);
    event_free(g->on_stop);
    event_free(g->on_sweep);
    event_base_free(g->hall.base);
    SSL_CTX_free(g->hall.tls);
    close(g->fd);
    close(g->stop);
    free(g->hall.scratch);
    free(g);
}
