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
#include "common/os/descriptor.h"
#include "common/os/lock.h"
#include "server/gate/client_slots.h"
#include "server/net/sock.h"
#include "server/rsync/users.h"

enum { SHARE_OF_ONE = 4, SHARE_LEAST = 2 };

enum { TICK_MS = 250, PARTING_MS = 2000, PARTING_MAX = 256 };

struct visitor {
    struct list node;
    struct door *door;
    pthread_t thread;
    int fd;
    struct sockaddr_storage peer;
    unsigned slot;
    atomic_bool over;
    uint64_t parting_ms; /* no thread: turned away, closed by then */
};

struct door {
    struct session_site site;
    struct listings *listings;
    struct client_slots slots;
    char address[SOCK_TEXT_BYTES];
    int fd;
    bool started;
    pthread_t thread;
    atomic_bool stop;
    struct list visitors; /* of the accepting thread; after its end, of door_close() */
    unsigned count;
    unsigned parting;
    char *users;
    struct gate *gate;
    void (*ended)(void *arg, const struct door_visit *v);
    void *arg;
    _Atomic uint64_t sessions[DOOR_OUTCOMES];
    _Atomic uint64_t files, bytes, sent_bytes, waits, steps;
    _Atomic uint32_t open;
};

const char *door_outcome_name(enum door_outcome o)
{
    static const char *const names[DOOR_OUTCOMES] = {"served",  "absent", "denied", "busy",
                                                     "refused", "broken", "stopped"};
    return names[o];
}

static enum door_outcome outcome_of(int rc)
{
    switch (rc) {
    case 0:
        return DOOR_SERVED;
    case E_NOTFOUND:
        return DOOR_ABSENT;
    case E_DENIED:
        return DOOR_DENIED;
    case E_BUSY:
        return DOOR_BUSY;
    case E_UNSUPPORTED:
    case E_INVALID:
    case E_TOOBIG:
        return DOOR_REFUSED;
    case E_NETWORK:
    case E_TIMEOUT:
    case E_PROTOCOL:
        return DOOR_BROKEN;
    default:
        return DOOR_STOPPED;
    }
}

static void note_door_visit(struct door *d, struct door_visit *v)
{
    v->outcome = outcome_of(v->rc);
    atomic_fetch_add(&d->sessions[v->outcome], 1);
    atomic_fetch_add(&d->files, v->end.files);
    atomic_fetch_add(&d->bytes, v->end.bytes);
    atomic_fetch_add(&d->sent_bytes, v->end.sent_bytes);
    atomic_fetch_add(&d->waits, v->end.waits);
    atomic_fetch_add(&d->steps, v->end.steps);
    d->ended(d->arg, v);
}

/* Of an address first, then of the token that it showed. */
static bool is_client(void *arg, uint64_t client, uint32_t *most)
{
    struct visitor *v = arg;

    *most = v->door->slots.of_one;
    return client_slots_move(&v->door->slots, v->slot, client);
}

static void *serve_rsync_visit(void *arg)
{
    struct visitor *v = arg;
    struct door *d = v->door;
    struct err e = {.code = 0};
    struct door_visit visit = {.peer = &v->peer};
    struct session_peer peer = {v->fd, &v->peer, is_client, v};
    uint64_t began = clock_now_ns();

    atomic_fetch_add(&d->open, 1);
    visit.rc = session_run(&peer, &d->site, &visit.end, &e);
    visit.took_ns = clock_now_ns() - began;
    log_info("rsync.session",
             "module=%s user=%s files=%" PRIu64 " bytes=%" PRIu64 " sent=%" PRIu64
             " took_ms=%" PRIu64 " steps=%" PRIu64 " end=\"%s\"",
             visit.end.module, visit.end.user, visit.end.files, visit.end.bytes,
             visit.end.sent_bytes, visit.took_ns / 1000000, visit.end.steps,
             visit.rc == 0 ? "served" : e.text);
    note_door_visit(d, &visit);
    gate_disconnect(d->gate, &v->peer);
    atomic_fetch_sub(&d->open, 1);
    shutdown(v->fd, SHUT_RDWR);
    atomic_store(&v->over, true);
    return NULL;
}

static void reap_door_visits(struct door *d, bool all)
{
    LIST_EACH (&d->visitors, it) {
        struct visitor *v = LIST_ITEM(it, struct visitor, node);
        bool parting = v->parting_ms != 0;
        if (all || (parting ? clock_now_ms() > v->parting_ms : atomic_load(&v->over))) {
            if (!parting) {
                pthread_join(v->thread, NULL);
                client_slots_leave(&d->slots, &v->slot);
            }
            close(v->fd);
            list_remove(&v->node);
            free(v);
            *(parting ? &d->parting : &d->count) -= 1;
        }
    }
}

/* Closed at once, with its handshake unread, the socket would be reset before the client has read
 * why. */
static void turn_away(struct door *d, int fd, const struct sockaddr_storage *peer, uint32_t most)
{
    struct door_visit visit = {.peer = peer, .rc = E_BUSY};
    char text[120];
    int n = snprintf(text, sizeof text,
                     "@RSYNCD: 31.0 md5\n@ERROR: max connections (%" PRIu32
                     ") reached -- try again later\n",
                     most);
    struct visitor *v;

    note_door_visit(d, &visit);
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

static void let_in(struct door *d, int fd, const struct sockaddr_storage *peer)
{
    struct visitor *v;
    unsigned slot;

    reap_door_visits(d, false);
    slot = client_slots_take(&d->slots, client_of(peer));
    if (slot == 0) {
        turn_away(d, fd, peer, d->count >= d->slots.count ? d->slots.count : d->slots.of_one);
        return;
    }
    if (!gate_connect(d->gate, peer)) {
        client_slots_leave(&d->slots, &slot);
        turn_away(d, fd, peer, gate_most_connections(d->gate, peer));
        return;
    }
    sock_tune(fd);
    v = NEW(struct visitor);
    v->door = d;
    v->fd = fd;
    v->peer = *peer;
    v->slot = slot;
    if (!thread_try("rsync", serve_rsync_visit, v, &v->thread)) {
        log_warn("rsync.busy", "why=\"no more threads\" open=%u", d->count);
        gate_disconnect(d->gate, peer);
        client_slots_leave(&d->slots, &slot);
        free(v);
        turn_away(d, fd, peer, d->count);
        return;
    }
    list_push_back(&d->visitors, &v->node);
    d->count++;
}

static void *accept_all(void *arg)
{
    struct door *d = arg;

    while (!atomic_load(&d->stop)) {
        struct pollfd p = {.fd = d->fd, .events = POLLIN};
        struct sockaddr_storage peer = {.ss_family = AF_UNSPEC};
        socklen_t peer_n = sizeof peer;
        int fd;
        if (poll(&p, 1, TICK_MS) <= 0) {
            reap_door_visits(d, false);
            continue;
        }
        fd = descriptor_within(DESCRIPTORS_OF_CONNECTIONS,
                               accept4(d->fd, (struct sockaddr *)&peer, &peer_n, SOCK_CLOEXEC));
        if (fd != -1) {
            let_in(d, fd, &peer);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
            poll(NULL, 0, TICK_MS); /* until others end */
        }
    }
    return NULL;
}

int door_open(const struct rsync_conf *conf, const struct door_site *site, struct door **out,
              struct err *e)
{
    struct door *d;
    uint32_t of_one = conf->client_connections;
    int fd;
    int rc = conf->users != NULL ? users_check(conf->users, e) : 0;

    rc = rc != 0 ? rc : sock_listen(conf->address, &fd, e);

    if (rc != 0) {
        return rc;
    }
    d = NEW(struct door);
    d->fd = fd;
    of_one =
        of_one != 0 ? of_one : (uint32_t)max_u64(conf->connections / SHARE_OF_ONE, SHARE_LEAST);
    client_slots_init(&d->slots, conf->connections, of_one);
    d->listings = listings_open(site->store, &d->stop);
    list_init(&d->visitors);
    sock_bound(fd, d->address);
    d->users = conf->users != NULL ? mem_strdup(conf->users) : NULL;
    d->gate = site->gate;
    d->ended = site->ended;
    d->arg = site->arg;
    d->site = (struct session_site){.listings = d->listings,
                                    .gate = site->gate,
                                    .users = d->users,
                                    .find = site->find,
                                    .each = site->each,
                                    .arg = site->arg,
                                    .stall_ms = conf->stall_ms,
                                    .reader = conf->reader,
                                    .max_steps = conf->max_steps,
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

void door_stats(const struct door *d, struct door_stats *out)
{
    *out = (struct door_stats){.files = atomic_load(&d->files),
                               .bytes = atomic_load(&d->bytes),
                               .sent_bytes = atomic_load(&d->sent_bytes),
                               .waits = atomic_load(&d->waits),
                               .steps = atomic_load(&d->steps),
                               .open = atomic_load(&d->open)};
    for (unsigned o = 0; o < DOOR_OUTCOMES; o++) {
        out->sessions[o] = atomic_load(&d->sessions[o]);
    }
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
    reap_door_visits(d, true);
    close(d->fd);
    client_slots_fini(&d->slots);
    listings_close(&d->listings);
    free(d->users);
    free(d);
}
