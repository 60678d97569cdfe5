#include "server/sync/rsync/dial.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/os/lock.h"
#include "server/sync/rsync/race.h"
#include "server/sync/rsync/tunnel.h"

/* A name that is looked up takes as long as the system likes, and nothing ends that: who gives up leaves it behind, and may be
 * gone, with the mailbox, when the answer comes. So whether it is still wanted is asked under a lock, and told under it, too. */
struct lookup {
    struct job job;
    struct letter letter;
    struct mailbox *box;
    struct lock lock;
    struct dial *dial; /* NULL: given up */
    char host[DIAL_HOST_MAX + 1];
    char port[8];
    struct addrinfo *found;
    int failed;
};

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

static void lookup_free(struct lookup *l)
{
    lock_fini(&l->lock);
    if (l->found != NULL) {
        freeaddrinfo(l->found);
    }
    free(l);
}

static void look_up(struct job *j)
{
    struct lookup *l = CONTAINER_OF(j, struct lookup, job);
    struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    bool wanted;

    l->failed = getaddrinfo(l->host, l->port, &want, &l->found);
    lock_take(&l->lock);
    wanted = l->dial != NULL;
    if (wanted) {
        mailbox_post(l->box, &l->letter);
    }
    lock_drop(&l->lock);
    if (!wanted) {
        lookup_free(l);
    }
}

/* Told already, it is the letter's, else the job's. */
static void lookup_give_up(struct lookup *l)
{
    lock_take(&l->lock);
    l->dial = NULL;
    lock_drop(&l->lock);
}

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

static void looked_up(struct letter *letter)
{
    struct lookup *l = CONTAINER_OF(letter, struct lookup, letter);
    struct dial *d;
    int failed = l->failed;

    lock_take(&l->lock); /* who posted it has let go of it */
    d = l->dial;
    lock_drop(&l->lock);
    if (d != NULL) {
        d->lookup = NULL;
        d->found = l->found;
        l->found = NULL;
    }
    lookup_free(l);
    if (d != NULL && failed == 0) {
        d->race = race_open(d->base, d->found, on_won, d);
    } else if (d != NULL) {
        fail(d, gai_strerror(failed));
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
    struct lookup *l;
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
    d->lookup = l = NEW(struct lookup);
    l->dial = d;
    l->box = site->box;
    lock_init(&l->lock, LOCK_DIAL);
    snprintf(l->host, sizeof l->host, SLICE_FMT, SLICE_ARG(host));
    snprintf(l->port, sizeof l->port, "%u", (unsigned)port);
    l->letter.deliver = looked_up;
    l->job.work = look_up;
    *out = d; /* before another thread may answer */
    pool_submit(site->pool, &l->job, site->client);
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
    if (d->lookup != NULL) {
        lookup_give_up(d->lookup);
    }
    if (d->found != NULL) {
        freeaddrinfo(d->found);
    }
    buf_free(&d->ask);
    free(d);
}
