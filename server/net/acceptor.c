#include "server/net/acceptor.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/descriptor.h"
#include "common/os/lock.h"
#include "server/net/sock.h"

enum { ACCEPT_BURST = 64, QUEUE_MAX = 4096, PAUSE_MS = 50, COMPLAIN_MS = 10000 };

struct watched {
    struct acceptor *acceptor;
    struct listener *listener; /* held */
    struct event *ev;
};

struct acceptor {
    struct loops *loops;
    struct event_base *base;
    struct message_queue *mail;
    struct message stop;
    struct event *resume;
    pthread_t thread;
    bool running;
    bool paused; /* the acceptor's own, while it runs */
    uint32_t connections_max;
    _Atomic uint64_t *open;
    uint64_t complained_ms;
    struct acceptor_events ev;
    size_t nwatched;
    struct watched *watched;
};

struct handover {
    struct message message;
    struct acceptor *acceptor;
    struct loop *loop;
    struct accepted accepted;
};

static void on_handover(struct message *message)
{
    struct handover *h = CONTAINER_OF(message, struct handover, message);

    loop_refresh(h->loop);
    h->acceptor->ev.on_accept(h->acceptor->ev.arg, h->loop, &h->accepted);
    free(h);
}

static struct loop *least_busy(struct loops *ls)
{
    struct loop *best = NULL;
    uint64_t best_bytes = 0;
    uint64_t best_connections = 0;

    for (unsigned i = 0; i < loops_count(ls); i++) {
        struct loop *l = loops_at(ls, i);
        uint64_t bytes = atomic_load_explicit(&l->inflight_bytes, memory_order_relaxed);
        uint64_t connections = atomic_load_explicit(&l->connections, memory_order_relaxed);
        if (best == NULL || bytes < best_bytes ||
            (bytes == best_bytes && connections < best_connections)) {
            best = l;
            best_bytes = bytes;
            best_connections = connections;
        }
    }
    return best;
}

static void set_watching(struct acceptor *a, bool on)
{
    for (size_t i = 0; i < a->nwatched; i++) {
        CHECK((on ? event_add(a->watched[i].ev, NULL) : event_del(a->watched[i].ev)) == 0);
    }
}

static void pause_accepting(struct acceptor *a, const char *why)
{
    static const struct timeval soon = {.tv_usec = PAUSE_MS * 1000};
    uint64_t now_ms = clock_now_ms();

    if (a->complained_ms == 0 || now_ms - a->complained_ms >= COMPLAIN_MS) {
        a->complained_ms = now_ms;
        log_warn("accept.paused", "why=%s open=%" PRIu64, why, atomic_load(a->open));
    }
    set_watching(a, false);
    a->paused = true;
    CHECK(event_add(a->resume, &soon) == 0);
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
    struct acceptor *a = arg;

    (void)fd;
    (void)what;
    a->paused = false;
    set_watching(a, true); /* level-triggered: what waits is announced at once */
}

static void hand_over(struct acceptor *a, struct handover *h)
{
    h->acceptor = a;
    h->message.deliver = on_handover;
    h->loop = least_busy(a->loops);
    atomic_fetch_add(a->open, 1);
    /* Counted here, not on the loop: the next choice follows before the loop has woken. */
    atomic_fetch_add_explicit(&h->loop->connections, 1, memory_order_relaxed);
    message_queue_post(h->loop->mail, &h->message);
}

static bool accept_one(struct acceptor *a, struct listener *l)
{
    uint64_t open = atomic_load(a->open);
    bool full = open >= a->connections_max;
    struct handover *h;
    socklen_t n = sizeof h->accepted.peer;

    if (full) {
        a->ev.on_full(a->ev.arg);
    }
    if (open >= (uint64_t)a->connections_max + SPARE_CONNECTIONS) {
        pause_accepting(a, "connections");
        return false;
    }
    h = NEW(struct handover);
    h->accepted.spare = full;
    h->accepted.fd = descriptor_within(DESCRIPTORS_OF_CONNECTIONS,
                                       accept4(listener_fd(l), (struct sockaddr *)&h->accepted.peer,
                                               &n, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (h->accepted.fd == -1) {
        int why = errno;
        free(h);
        if (why == EMFILE || why == ENFILE || why == ENOBUFS || why == ENOMEM) {
            pause_accepting(a, why == EMFILE || why == ENFILE ? "descriptors" : "memory");
        }
        return why == EINTR || why == ECONNABORTED;
    }
    sock_tune(h->accepted.fd);
    h->accepted.listener = listener_hold(l);
    hand_over(a, h);
    return true;
}

static void on_listening(evutil_socket_t fd, short what, void *arg)
{
    struct watched *w = arg;

    (void)fd;
    (void)what;
    for (int i = 0; i < ACCEPT_BURST && accept_one(w->acceptor, w->listener); i++) {
    }
}

static void on_acceptor_stop(struct message *message)
{
    struct acceptor *a = CONTAINER_OF(message, struct acceptor, stop);
    event_base_loopbreak(a->base);
}

static void *run_acceptor(void *arg)
{
    struct acceptor *a = arg;

    event_base_loop(a->base, EVLOOP_NO_EXIT_ON_EMPTY);
    return NULL;
}

struct acceptor *acceptor_open(struct loops *ls, uint32_t connections_max, _Atomic uint64_t *open,
                               struct acceptor_events ev)
{
    struct acceptor *a = NEW(struct acceptor);
    struct event_config *config = event_config_new();

    CHECK(config != NULL &&
          event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV) == 0);
    a->base = event_base_new_with_config(config);
    CHECK(a->base != NULL);
    event_config_free(config);
    a->loops = ls;
    a->connections_max = connections_max;
    a->open = open;
    a->ev = ev;
    a->stop.deliver = on_acceptor_stop;
    a->mail = message_queue_open(a->base);
    a->resume = event_new(a->base, -1, 0, on_resume, a);
    CHECK(a->resume != NULL);
    return a;
}

/* --- which listeners --- */

static bool address_stays(const struct listener *l, struct listener *const *ls, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(listener_address(l), listener_address(ls[i])) == 0) {
            return true;
        }
    }
    return false;
}

static void watch_listeners(struct acceptor *a, struct listener *const *ls, size_t count)
{
    for (size_t i = 0; i < a->nwatched; i++) {
        struct watched *w = &a->watched[i];
        bool stays = address_stays(w->listener, ls, count);
        for (int k = 0; a->running && !stays && k < QUEUE_MAX && accept_one(a, w->listener); k++) {
        }
    }
    for (size_t i = 0; i < a->nwatched; i++) {
        event_free(a->watched[i].ev);
        listener_release(&a->watched[i].listener);
    }
    free(a->watched);
    a->watched = mem_array(count, sizeof *a->watched);
    a->nwatched = count;
    for (size_t i = 0; i < count; i++) {
        struct watched *w = &a->watched[i];
        *w = (struct watched){.acceptor = a, .listener = listener_hold(ls[i])};
        w->ev = event_new(a->base, listener_fd(ls[i]), EV_READ | EV_PERSIST, on_listening, w);
        CHECK(w->ev != NULL);
    }
    if (a->running && !a->paused) {
        set_watching(a, true);
    }
}

struct change { /* made on the acceptor's thread, while the caller waits */
    struct message message;
    struct acceptor *acceptor;
    struct listener *const *listeners;
    size_t count;
    struct lock lock;
    struct cond over;
    bool done;
};

static void on_change(struct message *message)
{
    struct change *c = CONTAINER_OF(message, struct change, message);

    watch_listeners(c->acceptor, c->listeners, c->count);
    lock_take(&c->lock);
    c->done = true;
    cond_signal(&c->over);
    lock_drop(&c->lock);
}

void acceptor_watch(struct acceptor *a, struct listener *const *ls, size_t count)
{
    struct change c = {
        .message.deliver = on_change, .acceptor = a, .listeners = ls, .count = count};

    if (!a->running) {
        watch_listeners(a, ls, count);
        return;
    }
    lock_init(&c.lock, LOCK_LEAF);
    cond_init(&c.over);
    message_queue_post(a->mail, &c.message);
    lock_take(&c.lock);
    while (!c.done) {
        cond_wait(&c.over, &c.lock);
    }
    lock_drop(&c.lock);
    cond_fini(&c.over);
    lock_fini(&c.lock);
}

void acceptor_start(struct acceptor *a)
{
    CHECK(!a->running);
    set_watching(a, true);
    a->running = true;
    a->thread = thread_start("accept", run_acceptor, a);
}

void acceptor_stop(struct acceptor *a)
{
    if (!a->running) {
        return;
    }
    message_queue_post(a->mail, &a->stop);
    pthread_join(a->thread, NULL);
    a->running = false;
}

void acceptor_close(struct acceptor **ap)
{
    struct acceptor *a = *ap;

    if (a == NULL) {
        return;
    }
    *ap = NULL;
    acceptor_stop(a);
    watch_listeners(a, NULL, 0);
    free(a->watched);
    event_free(a->resume);
    message_queue_close(&a->mail);
    event_base_free(a->base);
    free(a);
}
