#include "server/sync/rsync/dial.h"

#include <errno.h>
#include <event2/event.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/xfer/dns_lookup.h"

/* --- a race of addresses ---
 *
 * The next address is tried when the one before has failed, or has been silent for a quarter of a
 * second; the tries before it go on meanwhile. Families take turns, in the order that the system
 * gave each.
 */

enum { NEXT_MS = 250 }; /* RFC 8305 (8) */

struct runner { /* one address */
    struct race *race;
    const struct addrinfo *to;
    int fd; /* or -1: not begun, or failed */
    struct event *on_write;
};

struct race {
    struct event_base *base;
    void (*won)(void *arg, int fd, const char *why);
    void *arg;
    struct event *turn; /* of the next runner to begin */
    struct runner *runner;
    size_t count, begun, running;
    const char *why; /* of the last that failed */
};

static void stop_runner(struct runner *x)
{
    if (x->on_write != NULL) {
        event_free(x->on_write);
        x->on_write = NULL;
    }
    if (x->fd != -1) {
        close(x->fd);
        x->fd = -1;
    }
}

void race_close(struct race **rp)
{
    struct race *r = *rp;

    *rp = NULL;
    if (r == NULL) {
        return;
    }
    for (size_t i = 0; i < r->count; i++) {
        stop_runner(&r->runner[i]);
    }
    event_free(r->turn);
    free(r->runner);
    free(r);
}

static void next_runner(struct race *r);

static void arrive(struct runner *x)
{
    struct race *r = x->race;
    int fd = x->fd;

    x->fd = -1;
    for (size_t i = 0; i < r->count; i++) {
        stop_runner(&r->runner[i]);
    }
    event_del(r->turn);
    r->won(r->arg, fd, NULL);
}

static void on_connected(evutil_socket_t fd, short what, void *arg)
{
    struct runner *x = arg;
    int why = 0;
    socklen_t n = sizeof why;

    (void)what;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &n) == -1) {
        why = errno;
    }
    if (why == 0) {
        arrive(x);
        return;
    }
    stop_runner(x);
    x->race->running--;
    x->race->why = strerrordesc_np(why);
    next_runner(x->race);
}

static bool begin_runner(struct runner *x)
{
    const struct addrinfo *to = x->to;

    x->fd = socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (x->fd == -1 ||
        (connect(x->fd, to->ai_addr, to->ai_addrlen) == -1 && errno != EINPROGRESS)) {
        x->race->why = strerrordesc_np(errno);
        stop_runner(x);
        return false;
    }
    x->on_write = event_new(x->race->base, x->fd, EV_WRITE, on_connected, x);
    CHECK(x->on_write != NULL && event_add(x->on_write, NULL) == 0);
    return true;
}

/* The next one that can begin does; when there is none, and nobody runs, all have lost. */
static void next_runner(struct race *r)
{
    static const struct timeval next = {.tv_usec = NEXT_MS * 1000};

    event_del(r->turn);
    while (r->begun < r->count) {
        if (begin_runner(&r->runner[r->begun++])) {
            r->running++;
            CHECK(event_add(r->turn, &next) == 0);
            return;
        }
    }
    if (r->running == 0) {
        r->won(r->arg, -1, r->why);
    }
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
    struct race *r = arg;

    (void)fd;
    (void)what;
    next_runner(r);
}

/* The first address of its family that is not in line yet, `other` or not; NULL: there is none. */
static const struct addrinfo *first_address_of(const struct race *r, const struct addrinfo *all,
                                               int family, bool other)
{
    for (const struct addrinfo *a = all; a != NULL; a = a->ai_next) {
        size_t i = 0;
        while (i < r->count && r->runner[i].to != a) {
            i++;
        }
        if (i == r->count && (a->ai_family == family) != other) {
            return a;
        }
    }
    return NULL;
}

/* Whoever has a dead way to one family should not wait for all of its addresses. */
static void line_up(struct race *r, const struct addrinfo *all)
{
    const struct addrinfo *a = all;

    while (a != NULL) {
        int family = a->ai_family;
        r->runner[r->count++] = (struct runner){.race = r, .to = a, .fd = -1};
        a = first_address_of(r, all, family, true);
        a = a != NULL ? a : first_address_of(r, all, family, false);
    }
}

struct race *race_open(struct event_base *base, const struct addrinfo *addresses,
                       void (*won)(void *arg, int fd, const char *why), void *arg)
{
    static const struct timeval now = {0};
    struct race *r = NEW(struct race);
    size_t n = 0;

    for (const struct addrinfo *a = addresses; a != NULL; a = a->ai_next) {
        n++;
    }
    CHECK(n > 0);
    r->base = base;
    r->won = won;
    r->arg = arg;
    r->runner = mem_array(n, sizeof *r->runner);
    line_up(r, addresses);
    r->turn = evtimer_new(base, on_turn, r);
    CHECK(r->turn != NULL && event_add(r->turn, &now) == 0);
    return r;
}

/* --- tunnel ---
 *
 * A connected socket becomes a way through the proxy at its other end: asks, and reads its answer
 * to the last byte.
 *
 * What the peer behind it says first stays in the socket for whoever takes that over.
 *
 * owns     the socket until done() gives it back or tunnel_close(); done() may close the tunnel
 * threads  the loop's; done() never runs inside tunnel_open. There is no deadline: the owner has
 *          one
 */

struct tunnel {
    int fd;
    struct buf ask;    /* what of it is still to be sent */
    struct buf answer; /* so far; all of it is the proxy's */
    struct event *on_write;
    struct event *on_read;
    void (*done)(void *arg, int fd, const struct err *why);
    void *arg;
};

/* NULL is fine */
static void tunnel_close(struct tunnel **tp)
{
    struct tunnel *t = *tp;

    if (t == NULL) {
        return;
    }
    *tp = NULL;
    event_free(t->on_write);
    event_free(t->on_read);
    if (t->fd != -1) {
        close(t->fd);
    }
    buf_free(&t->ask);
    buf_free(&t->answer);
    free(t);
}

static void finish_tunnel(struct tunnel *t, int rc, const struct err *why)
{
    int fd = rc == 0 ? t->fd : -1;

    event_del(t->on_write);
    event_del(t->on_read);
    if (rc == 0) {
        t->fd = -1; /* the owner's from now on */
    }
    t->done(t->arg, fd, why);
}

static void break_tunnel(struct tunnel *t)
{
    struct err e = {.code = 0};
    int rc = err_set(&e, E_NETWORK, "the proxy closed the connection");

    finish_tunnel(t, rc, &e);
}

static void can_write(evutil_socket_t fd, short what, void *arg)
{
    struct tunnel *t = arg;
    ssize_t sent;

    (void)what;
    do {
        sent = send(fd, t->ask.p, t->ask.n, MSG_NOSIGNAL);
    } while (sent == -1 && errno == EINTR);
    if (sent >= 0) {
        buf_drop(&t->ask, (size_t)sent);
    } else if (errno != EAGAIN) {
        break_tunnel(t);
        return;
    }
    if (t->ask.n > 0) {
        event_add(t->on_write, NULL);
    } else {
        event_add(t->on_read, NULL);
    }
}

/* Looks before it takes: what stands behind the end of the answer is not ours. */
static void can_read(evutil_socket_t fd, short what, void *arg)
{
    struct tunnel *t = arg;
    char room[1024];
    struct err e = {.code = 0};
    size_t before = t->answer.n, used = 0;
    ssize_t got;
    int rc;

    (void)what;
    do {
        got = recv(fd, room, sizeof room, MSG_PEEK);
    } while (got == -1 && errno == EINTR);
    if (got <= 0) {
        if (got == 0 || errno != EAGAIN) {
            break_tunnel(t);
        }
        return;
    }
    buf_add(&t->answer, room, (size_t)got);
    rc = proxy_answer(buf_slice(&t->answer), &used, &e);
    if (rc == 0) {
        got = (ssize_t)(used - before);
    }
    if (recv(fd, room, (size_t)got, 0) != got) {
        break_tunnel(t);
    } else if (rc != E_AGAIN) {
        finish_tunnel(t, rc, &e);
    }
}

/* ask: proxy_ask()'s, moved from. done: once; the socket, or -1 and why: E_DENIED, E_NETWORK. */
static struct tunnel *tunnel_open(struct event_base *base, int fd, struct buf *ask,
                                  void (*done)(void *arg, int fd, const struct err *why), void *arg)
{
    struct tunnel *t = NEW(struct tunnel);

    *t = (struct tunnel){.fd = fd, .ask = *ask, .done = done, .arg = arg};
    *ask = BUF_INIT(0);
    t->answer = BUF_INIT(PROXY_ANSWER_MAX + 1024);
    t->on_write = event_new(base, fd, EV_WRITE, can_write, t);
    t->on_read = event_new(base, fd, EV_READ | EV_PERSIST, can_read, t);
    CHECK(t->on_write != NULL && t->on_read != NULL);
    event_add(t->on_write, NULL);
    return t;
}

struct dial {
    struct event_base *base;
    void (*done)(void *arg, int fd, const struct err *why);
    void *arg;
    struct dns_lookup *dns_lookup; /* NULL: it has reported its result */
    struct addrinfo *found;
    struct race *race;
    struct buf ask; /* of a proxy; empty: straight */
    struct tunnel *tunnel;
};

/* --- the name --------------------------------------------------------------------------------- */

static void fail_rsync_dial(struct dial *d, const char *why)
{
    struct err e = {.code = 0};

    err_set(&e, E_NETWORK, "%s", why);
    d->done(d->arg, -1, &e);
}

static void on_won(void *arg, int fd, const char *why)
{
    struct dial *d = arg;
    int one = 1;

    if (fd == -1) {
        fail_rsync_dial(d, why);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    if (d->ask.n > 0) {
        d->tunnel = tunnel_open(d->base, fd, &d->ask, d->done, d->arg);
    } else {
        d->done(d->arg, fd, NULL);
    }
}

static void looked_up(void *arg, struct addrinfo *found, const char *why)
{
    struct dial *d = arg;

    d->dns_lookup = NULL;
    d->found = found;
    if (found != NULL) {
        d->race = race_open(d->base, found, on_won, d);
    } else {
        fail_rsync_dial(d, why);
    }
}

/* --- the whole -------------------------------------------------------------------------------- */

int dial_open(const struct dial_to *to, const struct link_site *site,
              void (*done)(void *arg, int fd, const struct err *why), void *arg, struct dial **out,
              struct err *e)
{
    struct slice host = to->proxy != NULL ? to->proxy->host : to->host;
    uint16_t port = to->proxy != NULL ? to->proxy->port : to->port;
    struct dial *d = NEW(struct dial);
    int rc = 0;

    CHECK(host.n > 0 && host.n <= DIAL_HOST_MAX);
    *d = (struct dial){.base = site->base, .done = done, .arg = arg, .ask = BUF_INIT(8192)};
    if (to->proxy != NULL) {
        rc = proxy_ask(to->proxy, to->host, to->port, &d->ask, e);
    }
    if (rc != 0) {
        dial_close(&d);
        return rc;
    }
    d->dns_lookup = dns_lookup_start(site->box, host, port, looked_up, d);
    *out = d;
    return 0;
}

void dial_close(struct dial **dp)
{
    struct dial *d = *dp;

    if (d == NULL) {
        return;
    }
    *dp = NULL;
    race_close(&d->race);
    tunnel_close(&d->tunnel);
    dns_lookup_cancel(&d->dns_lookup);
    if (d->found != NULL) {
        freeaddrinfo(d->found);
    }
    buf_free(&d->ask);
    free(d);
}
