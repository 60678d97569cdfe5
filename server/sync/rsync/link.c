#include "server/sync/rsync/link.h"

#include <errno.h>
#include <event2/event.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/os/clock.h"

enum { READ_BYTES = 64 << 10, SMALL_BYTES = 1 << 10, TICK_MS = 200, READS_A_TURN = 16 };

enum state { LINK_DIALING, LINK_HANDSHAKE, LINK_OPEN, LINK_ENDED };

struct link {
    enum state state;
    struct link_site site;
    struct link_events ev;
    void *arg;
    struct dial *dial;
    char host[DIAL_HOST_MAX + 1];
    bool tls;
    SSL_CTX *ctx;
    SSL *ssl;
    bool ssl_wants_write; /* for what it reads, or the handshake */
    int fd;
    struct event *on_read;
    struct event *on_write;
    struct event *tick;
    struct event *kick; /* work that may not be done inside a call of the owner's */
    uint32_t connect_ms, stall_ms, keep_alive_ms;
    uint64_t began_ms, moved_ms, sent_ms;
    bool paused;
    /* it was: the owner may have bytes of before, and no more come until it has used them */
    bool rested;
    unsigned busy; /* events on the stack: the owner may close us inside one */
    bool doomed;
    uint64_t bytes_in;
    size_t in_at, in_n; /* what the owner has left */
    char *in;
};

/* --- ends ------------------------------------------------------------------------------------- */

static void end_rsync_link(struct link *l, int rc, const struct err *why)
{
    if (l->state != LINK_ENDED) {
        l->state = LINK_ENDED;
        dial_close(&l->dial);
        event_del(l->tick);
        if (l->on_read != NULL) {
            event_del(l->on_read);
            event_del(l->on_write);
        }
        l->ev.on_end(l->arg, rc, why);
    }
}

static void fail_rsync_link(struct link *l, int code, const char *what)
{
    struct err e = {.code = 0};

    err_set(&e, code, "%s: %s", l->host, what);
    end_rsync_link(l, code, &e);
}

static void dispose(struct link *l)
{
    dial_close(&l->dial);
    if (l->on_read != NULL) {
        event_free(l->on_read);
        event_free(l->on_write);
    }
    SSL_free(l->ssl);
    if (l->fd != -1) {
        close(l->fd);
    }
    SSL_CTX_free(l->ctx);
    event_free(l->tick);
    event_free(l->kick);
    free(l->in);
    free(l);
}

void link_close(struct link **lp)
{
    struct link *l = *lp;

    if (l == NULL) {
        return;
    }
    *lp = NULL;
    l->state = LINK_ENDED;
    l->doomed = true;
    if (l->busy == 0) {
        dispose(l);
    }
}

static void enter_rsync_link(struct link *l)
{
    l->busy++;
}

static void leave_rsync_link(struct link *l)
{
    if (--l->busy == 0 && l->doomed) {
        dispose(l);
    }
}

/* --- bytes ------------------------------------------------------------------------------------ */

/* The program at the other end sends a line in two writes, and its kernel keeps the second until we
 * have acknowledged the first: twice 40 ms a visit, unless we do so at once. The kernel forgets
 * that we asked. */
static void acknowledge(struct link *l, ssize_t got)
{
    int one = 1;

    if (got > 0 && got < SMALL_BYTES) {
        setsockopt(l->fd, IPPROTO_TCP, TCP_QUICKACK, &one, sizeof one);
    }
}

/* > 0, 0 at the end, E_AGAIN, E_NETWORK. */
static ssize_t read_some(struct link *l)
{
    ssize_t got;
    size_t n = 0;

    if (l->ssl == NULL) {
        do {
            got = recv(l->fd, l->in, READ_BYTES, 0);
        } while (got == -1 && errno == EINTR);
        acknowledge(l, got);
        return got >= 0 ? got : errno == EAGAIN ? E_AGAIN : E_NETWORK;
    }
    ERR_clear_error();
    if (SSL_read_ex(l->ssl, l->in, READ_BYTES, &n) == 1) {
        return (ssize_t)n;
    }
    switch (SSL_get_error(l->ssl, 0)) {
    case SSL_ERROR_WANT_READ:
        return E_AGAIN;
    case SSL_ERROR_WANT_WRITE:
        l->ssl_wants_write = true;
        return E_AGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    default:
        return E_NETWORK;
    }
}

static ssize_t send_link_bytes(struct link *l, const char *p, size_t n)
{
    ssize_t sent;
    size_t took = 0;

    if (l->ssl == NULL) {
        do {
            sent = send(l->fd, p, n, MSG_NOSIGNAL);
        } while (sent == -1 && errno == EINTR);
        return sent >= 0 ? sent : errno == EAGAIN ? E_AGAIN : E_NETWORK;
    }
    ERR_clear_error();
    if (SSL_write_ex(l->ssl, p, n, &took) == 1) {
        return (ssize_t)took;
    }
    switch (SSL_get_error(l->ssl, 0)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return E_AGAIN;
    default:
        return E_NETWORK;
    }
}

/* False: the link has ended. */
static bool give_link_bytes(struct link *l)
{
    while ((l->in_n > 0 || l->rested) && !l->paused) {
        struct slice in = slice_of(l->in + l->in_at, l->in_n);
        size_t before = in.n;
        struct err e = {.code = 0};
        int rc;
        l->rested = false;
        rc = l->ev.on_bytes(l->arg, &in, &e);
        if (l->state == LINK_ENDED) {
            return false;
        }
        if (rc != 0) {
            err_prefix(&e, "%s", l->host);
            end_rsync_link(l, rc, &e);
            return false;
        }
        l->in_at += before - in.n;
        l->in_n = in.n;
        if (in.n == before) {
            break; /* paused, or all is said */
        }
    }
    return true;
}

static void want_events(struct link *l)
{
    bool out = l->ssl_wants_write || (l->state == LINK_OPEN && l->ev.out(l->arg)->n > 0);

    if (l->state == LINK_ENDED || l->on_read == NULL) {
        return;
    }
    if (l->paused || l->in_n > 0) {
        event_del(l->on_read);
    } else {
        event_add(l->on_read, NULL);
    }
    if (out) {
        event_add(l->on_write, NULL);
    } else {
        event_del(l->on_write);
    }
}

static bool send_all(struct link *l)
{
    struct buf *out = l->ev.out(l->arg);
    bool some = false;

    while (out->n > 0) {
        ssize_t sent = send_link_bytes(l, out->p, out->n);
        if (sent == E_AGAIN) {
            break;
        }
        if (sent < 0) {
            fail_rsync_link(l, E_NETWORK, "the connection was lost while sending");
            return false;
        }
        buf_drop(out, (size_t)sent);
        some = true;
    }
    if (some) {
        l->moved_ms = l->sent_ms = clock_now_ms();
        l->ev.on_sent(l->arg);
    }
    return l->state != LINK_ENDED;
}

static bool read_link_bytes(struct link *l)
{
    for (int turn = 0; turn < READS_A_TURN && !l->paused && l->in_n == 0; turn++) {
        ssize_t got = read_some(l);
        if (got == E_AGAIN) {
            break;
        }
        if (got == 0) {
            end_rsync_link(l, 0, NULL);
            return false;
        }
        if (got < 0) {
            fail_rsync_link(l, E_NETWORK, "the connection was lost");
            return false;
        }
        l->moved_ms = clock_now_ms();
        l->bytes_in += (uint64_t)got;
        l->in_at = 0;
        l->in_n = (size_t)got;
        if (!give_link_bytes(l)) {
            return false;
        }
    }
    return true;
}

/* Everything that can be done now. The owner's events may ask for more to be sent: so send after
 * reading. */
static void pump_rsync_link(struct link *l)
{
    if (l->state != LINK_OPEN) {
        return;
    }
    l->ssl_wants_write = false;
    if (!give_link_bytes(l) || !read_link_bytes(l) || !send_all(l)) {
        return;
    }
    want_events(l);
    if (l->ssl != NULL && SSL_pending(l->ssl) > 0 && !l->paused) {
        event_active(l->kick, EV_TIMEOUT, 0); /* inside TLS already: the socket will not tell */
    } else if (l->ev.out(l->arg)->n > 0) {
        event_add(l->on_write, NULL);
    }
}

/* --- beginnings ------------------------------------------------------------------------------- */

static void opened(struct link *l)
{
    l->state = LINK_OPEN;
    l->moved_ms = l->sent_ms = clock_now_ms();
    pump_rsync_link(l);
}

static void handshake(struct link *l)
{
    long bad;
    int ret;

    ERR_clear_error();
    ret = SSL_connect(l->ssl);
    if (ret == 1) {
        l->ssl_wants_write = false;
        opened(l);
        return;
    }
    switch (SSL_get_error(l->ssl, ret)) {
    case SSL_ERROR_WANT_READ:
        l->ssl_wants_write = false;
        want_events(l);
        return;
    case SSL_ERROR_WANT_WRITE:
        l->ssl_wants_write = true;
        want_events(l);
        return;
    default:
        break;
    }
    bad = SSL_get_verify_result(l->ssl);
    if (bad != X509_V_OK) {
        fail_rsync_link(l, E_DENIED, X509_verify_cert_error_string(bad));
    } else {
        fail_rsync_link(l, E_NETWORK, "the TLS handshake failed");
    }
}

static void begin_tls(struct link *l)
{
    l->ssl = SSL_new(l->ctx);
    CHECK(l->ssl != NULL && SSL_set_fd(l->ssl, l->fd) == 1);
    SSL_set_tlsext_host_name(l->ssl, l->host);
    if (SSL_set1_host(l->ssl, l->host) != 1 && l->host[0] != '\0') {
        fail_rsync_link(l, E_NETWORK,
                        "the host name is invalid, so the certificate cannot be checked");
        return;
    }
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(l->ssl), l->host); /* when it is an address */
    l->state = LINK_HANDSHAKE;
    handshake(l);
}

static void on_event(evutil_socket_t fd, short what, void *arg)
{
    struct link *l = arg;

    (void)fd;
    (void)what;
    enter_rsync_link(l);
    switch (l->state) {
    case LINK_HANDSHAKE:
        handshake(l);
        break;
    case LINK_OPEN:
        pump_rsync_link(l);
        break;
    case LINK_DIALING:
    case LINK_ENDED:
        break;
    }
    leave_rsync_link(l);
}

static void on_dialed(void *arg, int fd, const struct err *why)
{
    struct link *l = arg;
    struct err e = fd == -1 ? *why : (struct err){.code = 0}; /* it goes with the dial */

    dial_close(&l->dial);
    enter_rsync_link(l);
    l->fd = fd;
    if (fd == -1) {
        fail_rsync_link(l, e.code, e.text);
        leave_rsync_link(l);
        return;
    }
    l->on_read = event_new(l->site.base, fd, EV_READ | EV_PERSIST, on_event, l);
    l->on_write = event_new(l->site.base, fd, EV_WRITE | EV_PERSIST, on_event, l);
    CHECK(l->on_read != NULL && l->on_write != NULL);
    if (l->tls) {
        begin_tls(l);
    } else {
        opened(l);
    }
    leave_rsync_link(l);
}

static void tick(struct link *l, uint64_t now)
{
    if (l->state < LINK_OPEN) {
        if (now - l->began_ms > l->connect_ms) {
            fail_rsync_link(l, E_TIMEOUT, "the connection was not established in time");
        }
        return;
    }
    if (l->paused) {
        l->moved_ms = now;
    } else if (now - l->moved_ms > l->stall_ms) {
        fail_rsync_link(l, E_TIMEOUT, "the peer stopped sending");
        return;
    }
    if (l->keep_alive_ms != 0 && now - l->sent_ms > l->keep_alive_ms) {
        l->sent_ms = now;
        l->ev.on_quiet(l->arg);
        pump_rsync_link(l);
    }
}

static void on_rsync_link_tick(evutil_socket_t fd, short what, void *arg)
{
    struct link *l = arg;

    (void)fd;
    (void)what;
    enter_rsync_link(l);
    tick(l, clock_now_ms());
    leave_rsync_link(l);
}

static int make_context(struct link *l, const char *ca_file, struct err *e)
{
    l->ctx = SSL_CTX_new(TLS_client_method());
    CHECK(l->ctx != NULL);
    SSL_CTX_set_verify(l->ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(l->ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_options(l->ctx, SSL_OP_IGNORE_UNEXPECTED_EOF);
    CHECK(SSL_CTX_set_min_proto_version(l->ctx, TLS1_2_VERSION) == 1);
    if (ca_file == NULL) {
        CHECK(SSL_CTX_set_default_verify_paths(l->ctx) == 1);
    } else if (SSL_CTX_load_verify_locations(l->ctx, ca_file, NULL) != 1) {
        ERR_clear_error();
        return err_set(e, E_CONFIG, "%s: no certificates could be read from it", ca_file);
    }
    return 0;
}

int link_open(const struct link_settings *set, const struct link_site *site,
              const struct link_events *ev, void *arg, struct link **out, struct err *e)
{
    static const struct timeval step = {.tv_usec = TICK_MS * 1000};
    struct link *l;
    int rc = 0;

    if (set->host.n == 0 || set->host.n > DIAL_HOST_MAX) {
        return err_set(e, E_INVALID, "invalid host name of %zu bytes", set->host.n);
    }
    l = NEW(struct link);
    l->site = *site;
    l->ev = *ev;
    l->arg = arg;
    l->fd = -1;
    l->tls = set->tls;
    l->connect_ms = set->connect_ms;
    l->stall_ms = set->stall_ms;
    l->keep_alive_ms = set->keep_alive_ms;
    l->in = mem_new(READ_BYTES);
    memcpy(l->host, set->host.p, set->host.n);
    l->tick = event_new(site->base, -1, EV_PERSIST, on_rsync_link_tick, l);
    l->kick = event_new(site->base, -1, 0, on_event, l);
    CHECK(l->tick != NULL && l->kick != NULL && event_add(l->tick, &step) == 0);
    l->began_ms = clock_now_ms();
    if (set->tls) {
        rc = make_context(l, set->ca_file, e);
    }
    if (rc == 0) {
        struct dial_to to = {.host = set->host, .port = set->port, .proxy = set->proxy};
        rc = dial_open(&to, site, on_dialed, l, &l->dial, e);
    }
    if (rc != 0) {
        link_close(&l);
        return rc;
    }
    *out = l;
    return 0;
}

void link_pump(struct link *l)
{
    if (l->state == LINK_OPEN) {
        event_active(l->kick, EV_TIMEOUT, 0);
    }
}

void link_pause(struct link *l, bool paused)
{
    if (l->paused && !paused) {
        l->moved_ms = clock_now_ms();
        l->rested = true;
    }
    l->paused = paused;
    link_pump(l);
}

uint64_t link_bytes_in(const struct link *l)
{
    return l->bytes_in;
}
