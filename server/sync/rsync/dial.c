#include "server/sync/rsync/dial.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/xfer/lookup.h"
#include "server/sync/rsync/race.h"
#include "server/sync/rsync/tunnel.h"

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
