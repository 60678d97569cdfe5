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

struct resolve { /* lives until its job has come back, whatever became of the dial */
    struct job job;
    struct dial *dial; /* NULL: given up */
    char host[DIAL_HOST_MAX + 1];
    char port[8];
    struct addrinfo *found;
    int failed;
};

struct dial {
    struct event_base *base;
    void (*done)(void *arg, int fd, const char *why);
    void *arg;
    struct resolve *resolve;
    struct addrinfo *found;
    const struct addrinfo *at;
    int fd;
    struct event *on_write;
};

static void drop_socket(struct dial *d)
{
    if (d->on_write != NULL) {
        event_free(d->on_write);
        d->on_write = NULL;
    }
    if (d->fd != -1) {
        close(d->fd);
        d->fd = -1;
    }
}

void dial_close(struct dial **dp)
{
    struct dial *d = *dp;

    if (d == NULL) {
        return;
    }
    *dp = NULL;
    drop_socket(d);
    if (d->resolve != NULL) {
        d->resolve->dial = NULL;
    }
    if (d->found != NULL) {
        freeaddrinfo(d->found);
    }
    free(d);
}

static void try_next(struct dial *d);

static void on_write(evutil_socket_t fd, short what, void *arg)
{
    struct dial *d = arg;
    int why = 0;
    int one = 1;
    socklen_t n = sizeof why;

    (void)what;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &n);
    if (why != 0) {
        d->at = d->at->ai_next;
        if (d->at != NULL) {
            try_next(d);
        } else {
            d->done(d->arg, -1, strerrordesc_np(why));
        }
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    d->fd = -1;
    event_free(d->on_write);
    d->on_write = NULL;
    d->done(d->arg, fd, NULL);
}

static void try_next(struct dial *d)
{
    for (; d->at != NULL; d->at = d->at->ai_next) {
        drop_socket(d);
        d->fd = socket(d->at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (d->fd == -1) {
            continue;
        }
        if (connect(d->fd, d->at->ai_addr, d->at->ai_addrlen) == -1 && errno != EINPROGRESS) {
            continue;
        }
        d->on_write = event_new(d->base, d->fd, EV_WRITE, on_write, d);
        CHECK(d->on_write != NULL && event_add(d->on_write, NULL) == 0);
        return;
    }
    d->done(d->arg, -1, "none of its addresses can be reached");
}

static void look_up(struct job *j)
{
    struct resolve *r = CONTAINER_OF(j, struct resolve, job);
    struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};

    r->failed = getaddrinfo(r->host, r->port, &want, &r->found);
}

static void looked_up(struct job *j)
{
    struct resolve *r = CONTAINER_OF(j, struct resolve, job);
    struct dial *d = r->dial;
    struct addrinfo *found = r->failed == 0 ? r->found : NULL;
    int failed = r->failed;

    free(r);
    if (d == NULL) {
        if (found != NULL) {
            freeaddrinfo(found);
        }
        return;
    }
    d->resolve = NULL;
    d->found = found;
    d->at = found;
    if (found != NULL) {
        try_next(d);
    } else {
        d->done(d->arg, -1, gai_strerror(failed));
    }
}

struct dial *dial_open(const char *host, uint16_t port, const struct link_site *site,
                       void (*done)(void *arg, int fd, const char *why), void *arg)
{
    struct dial *d = NEW(struct dial);

    CHECK(strlen(host) <= DIAL_HOST_MAX);
    d->base = site->base;
    d->done = done;
    d->arg = arg;
    d->fd = -1;
    d->resolve = NEW(struct resolve);
    d->resolve->dial = d;
    snprintf(d->resolve->host, sizeof d->resolve->host, "%s", host);
    snprintf(d->resolve->port, sizeof d->resolve->port, "%u", (unsigned)port);
    d->resolve->job = (struct job){.work = look_up, .done = looked_up, .reply = site->box};
    pool_submit(site->pool, &d->resolve->job);
    return d;
}
