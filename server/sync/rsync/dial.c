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

#include "common/xfer/lookup.h"
#include "server/sync/rsync/race.h"

struct tunnel;

/* --- tunnel ---
 *
 * A connected socket becomes a way through the proxy at its other end: asks, and reads its answer to the last byte.
 *
 * What the peer behind it says first stays in the socket for whoever takes that over.
 *
 * owns     the socket until done() gives it back or tunnel_close(); done() may close the tunnel
 * threads  the loop's; done() never runs inside tunnel_open. There is no deadline: the owner has one
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

static void finish(struct tunnel *t, int rc, const struct err *why)
{
    int fd = rc == 0 ? t->fd : -1;

    event_del(t->on_write);
    event_del(t->on_read);
    if (rc == 0) {
        t->fd = -1; /* the owner's from now on */
    }
    t->done(t->arg, fd, why);
}

static void broken(struct tunnel *t)
{
    struct err e = {.code = 0};
    int rc = err_set(&e, E_NETWORK, "the proxy closed the connection");

    finish(t, rc, &e);
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
        broken(t);
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
            broken(t);
        }
        return;
    }
    buf_add(&t->answer, room, (size_t)got);
    rc = proxy_answer(buf_slice(&t->answer), &used, &e);
    if (rc == 0) {
        got = (ssize_t)(used - before);
    }
    if (recv(fd, room, (size_t)got, 0) != got) {
        broken(t);
    } else if (rc != E_AGAIN) {
        finish(t, rc, &e);
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
    struct lookup *lookup; /* NULL: it has told */
    struct addrinfo *found;
    struct race *race;
    struct buf ask; /* of a proxy; empty: straight */
    struct tunnel *tunnel;
};

/* --- the name -------------------------------------------------------------------------------------------------------- */

static void fail(struct dial *d, const char *why)
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
        fail(d, why);
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

    d->lookup = NULL;
    d->found = found;
    if (found != NULL) {
        d->race = race_open(d->base, found, on_won, d);
    } else {
        fail(d, why);
    }
}

/* --- the whole ------------------------------------------------------------------------------------------------------- */

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
    d->lookup = lookup_start(site->box, host, port, looked_up, d);
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
    lookup_cancel(&d->lookup);
    if (d->found != NULL) {
        freeaddrinfo(d->found);
    }
    buf_free(&d->ask);
    free(d);
}
