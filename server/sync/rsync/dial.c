#include "server/sync/rsync/dial.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/check.h"
#include "server/sync/rsync/race.h"

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
    struct race *race;
};

void dial_close(struct dial **dp)
{
    struct dial *d = *dp;

    if (d == NULL) {
        return;
    }
    *dp = NULL;
    race_close(&d->race);
    if (d->resolve != NULL) {
        d->resolve->dial = NULL;
    }
    if (d->found != NULL) {
        freeaddrinfo(d->found);
    }
    free(d);
}

static void on_won(void *arg, int fd, const char *why)
{
    struct dial *d = arg;
    int one = 1;

    if (fd != -1) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    }
    d->done(d->arg, fd, why);
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
    if (found != NULL) {
        d->race = race_open(d->base, found, on_won, d);
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
    d->resolve = NEW(struct resolve);
    d->resolve->dial = d;
    snprintf(d->resolve->host, sizeof d->resolve->host, "%s", host);
    snprintf(d->resolve->port, sizeof d->resolve->port, "%u", (unsigned)port);
    d->resolve->job = (struct job){.work = look_up, .done = looked_up, .reply = site->box};
    pool_submit(site->pool, &d->resolve->job);
    return d;
}
