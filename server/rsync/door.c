#include "server/rsync/door.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/lock.h"
#include "server/net/sock.h"

enum { TICK_MS = 250, PARTING_MS = 2000, PARTING_MAX = 256 };

struct visitor {
    struct list node;
    struct door *door;
    pthread_t thread;
    int fd;
    atomic_bool over;
    uint64_t parting_ms; /* no thread: turned away, closed by then */
};

struct door {
    struct session_site site;
    struct listings *listings;
    uint32_t connections;
    char address[SOCK_TEXT_BYTES];
    int fd;
    bool started;
    pthread_t thread;
    atomic_bool stop;
    struct list visitors; /* of the accepting thread; after its end, of door_close() */
    unsigned count;
    unsigned parting;
    _Atomic uint64_t sessions;
};

static void *serve(void *arg)
{
    struct visitor *v = arg;
    struct session_end end;
    struct err e = {.code = 0};
    uint64_t began = clock_now_ms();
    int rc = session_run(v->fd, &v->door->site, &end, &e);

    log_info("rsync.session",
             "module=%s files=%" PRIu64 " bytes=%" PRIu64 " sent=%" PRIu64 " took_ms=%" PRIu64
             " end=\"%s\"",
             end.module, end.files, end.bytes, end.sent_bytes, clock_now_ms() - began,
             rc == 0 ? "served" : e.text);
    shutdown(v->fd, SHUT_RDWR);
    atomic_store(&v->over, true);
    return NULL;
}

static void reap(struct door *d, bool all)
{
    LIST_EACH (&d->visitors, it) {
        struct visitor *v = LIST_ITEM(it, struct visitor, node);
        bool parting = v->parting_ms != 0;
        if (all || (parting ? clock_now_ms() > v->parting_ms : atomic_load(&v->over))) {
            if (!parting) {
                pthread_join(v->thread, NULL);
            }
            close(v->fd);
            list_remove(&v->node);
            free(v);
            *(parting ? &d->parting : &d->count) -= 1;
        }
    }
}

/* Closed at once, with its greeting unread, the socket would be reset before the client has read why. */
static void turn_away(struct door *d, int fd)
{
    char text[120];
    int n = snprintf(text, sizeof text,
                     "@RSYNCD: 31.0 md5\n@ERROR: max connections (%" PRIu32
                     ") reached -- try again later\n",
                     d->connections);

    struct visitor *v;

    (void)!send(fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (d->parting >= PARTING_MAX) {
        close(fd);
        return;
    }
    shutdown(fd, SHUT_WR);
    v = NEW(struct visitor);
    v->door = d;
    v->fd = fd;
    v->parting_ms = clock_now_ms() + PARTING_MS;
    list_push_back(&d->visitors, &v->node);
    d->parting++;
}

static void let_in(struct door *d, int fd)
{
    struct visitor *v;

    reap(d, false);
    if (d->count >= d->connections) {
        turn_away(d, fd);
        return;
    }
    sock_tune(fd);
    v = NEW(struct visitor);
    v->door = d;
    v->fd = fd;
    list_push_back(&d->visitors, &v->node);
    d->count++;
    atomic_fetch_add(&d->sessions, 1);
    v->thread = thread_start("rsync", serve, v);
}

static void *accept_all(void *arg)
{
    struct door *d = arg;

    while (!atomic_load(&d->stop)) {
        struct pollfd p = {.fd = d->fd, .events = POLLIN};
        int fd;
        if (poll(&p, 1, TICK_MS) <= 0) {
            reap(d, false);
            continue;
        }
        fd = accept4(d->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd != -1) {
            let_in(d, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
            poll(NULL, 0, TICK_MS); /* until others end */
        }
    }
    return NULL;
}

int door_open(const struct rsync_conf *conf, struct store *s, const struct door_modules *m,
              struct door **out, struct err *e)
{
    struct door *d;
    int fd;
    int rc = sock_listen(conf->address, &fd, e);

    if (rc != 0) {
        return rc;
    }
    d = NEW(struct door);
    d->fd = fd;
    d->connections = conf->connections;
    d->listings = listings_open(s);
    list_init(&d->visitors);
    sock_bound(fd, d->address);
    d->site = (struct session_site){.listings = d->listings,
                                    .readable = m->readable,
                                    .each = m->each,
                                    .arg = m->arg,
                                    .stall_ms = conf->stall_ms,
                                    .stop = &d->stop};
    *out = d;
    return 0;
}

void door_start(struct door *d)
{
    d->started = true;
    d->thread = thread_start("rsync-door", accept_all, d);
}

const char *door_address(const struct door *d)
{
    return d->address;
}

uint64_t door_sessions(struct door *d)
{
    return atomic_load(&d->sessions);
}

void door_close(struct door **dp)
{
    struct door *d = *dp;

    if (d == NULL) {
        return;
    }
    *dp = NULL;
    atomic_store(&d->stop, true);
    if (d->started) {
        pthread_join(d->thread, NULL);
    }
    reap(d, true);
    close(d->fd);
    listings_close(&d->listings);
    free(d);
}
