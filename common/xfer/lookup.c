#include "common/xfer/lookup.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/os/pool.h"

enum { THREADS = 4, NAME_MAX_BYTES = 254 };

struct lookups {
    struct mailbox *box;
    struct pool *pool;
};

struct lookup {
    struct job job;
    void (*done)(void *arg, const struct addrinfo *found); /* NULL: cancelled */
    void *arg;
    struct addrinfo *found;
    char host[NAME_MAX_BYTES];
    char port[8];
};

static void on_thread(struct job *j)
{
    struct lookup *l = CONTAINER_OF(j, struct lookup, job);
    struct addrinfo want = {.ai_socktype = SOCK_STREAM};

    if (getaddrinfo(l->host, l->port, &want, &l->found) != 0) {
        l->found = NULL;
    }
}

static void on_loop(struct job *j)
{
    struct lookup *l = CONTAINER_OF(j, struct lookup, job);

    if (l->done != NULL) {
        l->done(l->arg, l->found);
    }
    if (l->found != NULL) {
        freeaddrinfo(l->found);
    }
    free(l);
}

struct lookups *lookups_open(struct event_base *base)
{
    struct lookups *ls = NEW(struct lookups);

    ls->box = mailbox_open(base);
    ls->pool = pool_open("lookup", THREADS, 0);
    return ls;
}

void lookups_close(struct lookups **lp)
{
    struct lookups *ls = *lp;

    *lp = NULL;
    if (ls == NULL) {
        return;
    }
    pool_close(&ls->pool);
    mailbox_close(&ls->box);
    free(ls);
}

struct lookup *lookup_start(struct lookups *ls, struct slice host, uint16_t port,
                            void (*done)(void *arg, const struct addrinfo *found), void *arg)
{
    struct lookup *l = NEW(struct lookup);

    CHECK(host.n < sizeof l->host); /* url_split() takes none that is longer */
    memcpy(l->host, host.p, host.n);
    snprintf(l->port, sizeof l->port, "%u", (unsigned)port);
    l->done = done;
    l->arg = arg;
    l->job.work = on_thread;
    l->job.done = on_loop;
    l->job.reply = ls->box;
    pool_submit(ls->pool, &l->job, CLIENT_PROGRAM);
    return l;
}

void lookup_cancel(struct lookup **lp)
{
    struct lookup *l = *lp;

    *lp = NULL;
    if (l != NULL) {
        l->done = NULL;
    }
}
