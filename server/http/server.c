#include "server/http/server.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/lock.h"
#include "server/http/conn.h"
#include "server/net/acceptor.h"

struct http_server {
    struct loops *loops;
    struct http_limits limits;
    struct acceptor *acceptor;
    struct body_memory *memory;
    _Atomic uint64_t open;
    struct http_listeners listeners;
    /* drain */
    _Atomic bool draining, drained;
    uint32_t drain_ms;
    void (*on_drained)(void *arg);
    void *drained_arg;
    /* close; the lock is also over a change of `listeners` */
    struct lock lock;
    struct cond done;
    unsigned http_loops_left;
    struct http_loop *http_loops;
};

static struct http_loop *http_loop_at(struct http_server *s, const struct loop *l)
{
    return &s->http_loops[l->index];
}

static void on_accept(void *arg, struct loop *l, const struct accepted *a)
{
    struct http_server *s = arg;
    struct http_loop *http_loop = http_loop_at(s, l);

    if (http_loop->handler.on_connect != NULL &&
        !http_loop->handler.on_connect(http_loop->handler.arg, &a->peer)) {
        close(a->fd);
        listener_release(&(struct listener *){a->listener});
        count(&http_loop->counters.limited, 1);
        atomic_fetch_sub_explicit(&l->connections, 1, memory_order_relaxed);
        server_conn_gone(s);
        return;
    }
    conn_open(http_loop, a);
}

static void on_reap(struct message *message)
{
    struct http_loop *http_loop = CONTAINER_OF(message, struct http_loop, reap);
    struct http_server *s = http_loop->server;
    uint64_t open = atomic_load(&s->open), most = s->limits.connections;
    uint64_t part = 1 + most / 64; /* some more than it takes: the next ones come at once */

    loop_refresh(http_loop->loop);
    if (open >= most) {
        conn_reap(http_loop, (unsigned)((open - most + part) / loops_count(s->loops) + 1));
    }
    atomic_store(&http_loop->reaping, false);
}

static void on_full(void *arg)
{
    struct http_server *s = arg;

    for (unsigned i = 0; i < loops_count(s->loops); i++) {
        struct http_loop *http_loop = &s->http_loops[i];
        if (!atomic_exchange(&http_loop->reaping, true)) {
            http_loop->reap.deliver = on_reap;
            message_queue_post(http_loop->loop->mail, &http_loop->reap);
        }
    }
}

bool server_is_full(struct http_server *s)
{
    return atomic_load_explicit(&s->open, memory_order_relaxed) > s->limits.connections;
}

struct http_server *http_server_open(struct loops *ls, struct pool *disk,
                                     struct body_memory *memory, const struct http_limits *limits,
                                     struct exchange_handler handler)
{
    struct http_server *s = NEW(struct http_server);

    s->loops = ls;
    s->limits = *limits;
    lock_init(&s->lock, LOCK_LISTENERS);
    cond_init(&s->done);
    s->memory = memory;
    s->http_loops = mem_array(loops_count(ls), sizeof *s->http_loops);
    for (unsigned i = 0; i < loops_count(ls); i++) {
        struct http_loop *http_loop = &s->http_loops[i];
        http_loop->server = s;
        http_loop->limits = &s->limits;
        http_loop->handler = handler;
        http_loop->disk = disk;
        http_loop->memory = s->memory;
        http_loop_init(http_loop, loops_at(ls, i));
    }
    s->acceptor = acceptor_open(ls, limits->connections, &s->open,
                                (struct acceptor_events){on_accept, on_full, s});
    return s;
}

/* --- listeners -------------------------------------------------------------------------------- */

/* Names are unique, but for "127.0.0.1:0", which may stand there several times: then the place
 * counts. */
static struct listener *find_listener(struct http_server *s, size_t place, const char *address)
{
    struct http_listeners *ls = &s->listeners;

    if (place < ls->count && listener_named(ls->at[place], address)) {
        return ls->at[place];
    }
    for (size_t i = 0; i < ls->count; i++) {
        if (listener_named(ls->at[i], address)) {
            return ls->at[i];
        }
    }
    return NULL;
}

static void drain_retired(struct loop *l, void *arg)
{
    struct http_server *s = arg;
    struct http_loop *http_loop = http_loop_at(s, l);

    LIST_EACH (&http_loop->conns, n) {
        struct conn *c = LIST_ITEM(n, struct conn, node);
        if (listener_retired(c->listener) && (c->asked || c->h2 != NULL)) {
            c->ops->drain(c);
        }
    }
}

static struct http_listeners listeners_new(size_t count)
{
    struct http_listeners ls = {.count = count};

    ls.at = mem_array(count, sizeof *ls.at);
    return ls;
}

int http_server_bind(struct http_server *s, const struct listener_settings *set, size_t count,
                     struct http_listeners *out, struct err *e)
{
    int rc = 0;

    *out = listeners_new(count);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = listener_open(find_listener(s, i, set[i].address), &set[i], &out->at[i], e);
    }
    if (rc != 0) {
        http_listeners_drop(out);
    }
    return rc;
}

int http_server_try(struct http_server *s, const struct listener_settings *set, size_t count,
                    struct err *e)
{
    /* All are held until the end: two new ones may exclude each other. */
    struct http_listeners fresh = listeners_new(count);
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < count; i++) {
        if (find_listener(s, i, set[i].address) == NULL) {
            rc = listener_open(NULL, &set[i], &fresh.at[i], e);
        }
    }
    http_listeners_drop(&fresh);
    return rc;
}

void http_listeners_drop(struct http_listeners *ls)
{
    for (size_t i = 0; i < ls->count; i++) {
        listener_cancel(&ls->at[i]);
    }
    free(ls->at);
    *ls = (struct http_listeners){0};
}

static bool among(const struct http_listeners *ls, const struct listener *l)
{
    for (size_t i = 0; i < ls->count; i++) {
        if (ls->at[i] == l) {
            return true;
        }
    }
    return false;
}

void http_server_listen(struct http_server *s, struct http_listeners *ls)
{
    struct http_listeners old = s->listeners;
    bool some = false;

    for (size_t i = 0; i < ls->count; i++) {
        listener_begin(ls->at[i]);
    }
    acceptor_watch(s->acceptor, ls->at, ls->count);
    lock_take(&s->lock);
    s->listeners = *ls;
    lock_drop(&s->lock);
    *ls = (struct http_listeners){0};
    for (size_t i = 0; i < old.count; i++) {
        if (!among(&s->listeners, old.at[i])) {
            listener_retire(old.at[i]);
            some = true;
        }
    }
    http_listeners_drop(&old);
    if (some) {
        loops_each(s->loops, drain_retired, s);
    }
}

const struct listener *http_server_listener(const struct http_server *s, size_t index)
{
    return index < s->listeners.count ? s->listeners.at[index] : NULL;
}

void http_server_start(struct http_server *s)
{
    acceptor_start(s->acceptor);
}

/* --- drain ------------------------------------------------------------------------------------ */

static void tell_drained(struct http_server *s)
{
    if (atomic_load(&s->draining) && atomic_load(&s->open) == 0 &&
        !atomic_exchange(&s->drained, true) && s->on_drained != NULL) {
        s->on_drained(s->drained_arg);
    }
}

void server_conn_gone(struct http_server *s)
{
    if (atomic_fetch_sub(&s->open, 1) == 1) {
        tell_drained(s);
    }
}

static void close_all_conns(struct http_loop *http_loop)
{
    while (!list_empty(&http_loop->conns)) {
        conn_close(LIST_ITEM(http_loop->conns.next, struct conn, node));
    }
}

static void on_drain_over(struct timer *t)
{
    struct http_loop *http_loop = CONTAINER_OF(t, struct http_loop, drain);
    close_all_conns(http_loop);
}

static void drain_http_loop(struct loop *l, void *arg)
{
    struct http_server *s = arg;
    struct http_loop *http_loop = http_loop_at(s, l);

    http_loop->draining = true;
    LIST_EACH (&http_loop->conns, n) {
        struct conn *c = LIST_ITEM(n, struct conn, node);
        c->ops->drain(c);
    }
    http_loop->drain.fire = on_drain_over;
    timer_set(&l->timers, &http_loop->drain, l->now_ms + s->drain_ms);
    tell_drained(s);
}

void http_server_drain(struct http_server *s, uint32_t drain_ms, void (*drained)(void *arg),
                       void *arg)
{
    acceptor_stop(s->acceptor);
    s->drain_ms = drain_ms;
    s->on_drained = drained;
    s->drained_arg = arg;
    atomic_store(&s->draining, true);
    loops_each(s->loops, drain_http_loop, s);
}

/* --- close ------------------------------------------------------------------------------------ */

static void close_http_loop(struct loop *l, void *arg)
{
    struct http_server *s = arg;
    struct http_loop *http_loop = http_loop_at(s, l);

    close_all_conns(http_loop);
    timer_stop(&http_loop->drain);
    http_loop_fini(http_loop);
    lock_take(&s->lock);
    s->http_loops_left--;
    cond_signal(&s->done);
    lock_drop(&s->lock);
}

void http_server_close(struct http_server **sp)
{
    struct http_server *s = *sp;

    if (s == NULL) {
        return;
    }
    acceptor_stop(s->acceptor);
    s->http_loops_left = loops_count(s->loops);
    loops_each(s->loops, close_http_loop, s);
    lock_take(&s->lock);
    while (s->http_loops_left > 0) {
        cond_wait(&s->done, &s->lock);
    }
    lock_drop(&s->lock);
    *sp = NULL; /* not before: handlers that were still running may have looked at it */
    acceptor_close(&s->acceptor);
    http_listeners_drop(&s->listeners);
    cond_fini(&s->done);
    lock_fini(&s->lock);
    free(s->http_loops);
    free(s);
}

/* --- what it has done ------------------------------------------------------------------------- */

static uint64_t load_counter(const _Atomic uint64_t *n)
{
    return atomic_load_explicit(n, memory_order_relaxed);
}

void http_server_stats(struct http_server *s, struct http_stats *out)
{
    *out = (struct http_stats){.open = atomic_load(&s->open)};
    if (s->memory != NULL) {
        body_memory_stats(s->memory, &out->bodies);
    }
    for (unsigned i = 0; i < loops_count(s->loops); i++) {
        const struct http_loop_counters *c = &s->http_loops[i].counters;
        out->accepted += load_counter(&c->accepted);
        out->open_h2 += load_counter(&c->h2);
        out->open_tls += load_counter(&c->tls);
        out->bytes_in += load_counter(&c->bytes_in);
        out->bytes_out += load_counter(&c->bytes_out);
        out->protocol_errors += load_counter(&c->protocol_errors);
        out->limited += load_counter(&c->limited);
    }
}

size_t http_server_certificates(struct http_server *s, struct http_certificate *out, size_t room)
{
    size_t n = 0;

    lock_take(&s->lock);
    for (size_t i = 0; i < s->listeners.count && n < room; i++) {
        const struct listener *l = s->listeners.at[i];
        if (listener_identity(l) != NULL) {
            out[n].valid = tls_identity_validity(listener_identity(l));
            out[n].public = tls_identity_public(listener_identity(l));
            snprintf(out[n++].listen, sizeof out->listen, "%s", listener_address(l));
        }
    }
    lock_drop(&s->lock);
    return n;
}

/* --- who is here ------------------------------------------------------------------------------ */

struct census {
    struct http_server *server;
    struct lock lock; /* over all below */
    struct cond done;
    unsigned http_loops_left;
    struct http_client *client;
    size_t count, room;
};

static void count_http_loop(struct loop *l, void *arg)
{
    struct census *cs = arg;
    struct http_loop *http_loop = http_loop_at(cs->server, l);

    lock_take(&cs->lock);
    for (const struct client *c = http_loop->clients.all; c != NULL; c = c->hh.next) {
        if (cs->count == cs->room) {
            cs->room = cs->room != 0 ? 2 * cs->room : 64;
            cs->client = realloc(cs->client, cs->room * sizeof *cs->client);
            CHECK(cs->client != NULL);
        }
        cs->client[cs->count] =
            (struct http_client){.connections = c->connections, .bytes_out = c->bytes_out};
        memcpy(cs->client[cs->count++].address, c->address, ADDRESS_BYTES);
    }
    cs->http_loops_left--;
    cond_signal(&cs->done);
    lock_drop(&cs->lock);
}

static int by_address(const void *a, const void *b)
{
    return memcmp(a, b, ADDRESS_BYTES); /* the first field */
}

static int compare_client_bytes(const void *a, const void *b)
{
    const struct http_client *x = a, *y = b;

    return x->bytes_out < y->bytes_out ? 1 : x->bytes_out > y->bytes_out ? -1 : by_address(a, b);
}

/* A client that has connections on several loops becomes one. */
static size_t merge(struct http_client *c, size_t count)
{
    size_t n = 0;

    qsort(c, count, sizeof *c, by_address);
    for (size_t i = 0; i < count; i++) {
        if (n > 0 && by_address(&c[n - 1], &c[i]) == 0) {
            c[n - 1].connections += c[i].connections;
            c[n - 1].bytes_out += c[i].bytes_out;
        } else {
            c[n++] = c[i];
        }
    }
    qsort(c, n, sizeof *c, compare_client_bytes);
    return n;
}

size_t http_server_clients(struct http_server *s, struct http_client **out)
{
    struct census cs = {.server = s, .http_loops_left = loops_count(s->loops)};

    lock_init(&cs.lock, LOCK_LEAF);
    cond_init(&cs.done);
    loops_each(s->loops, count_http_loop, &cs);
    lock_take(&cs.lock);
    while (cs.http_loops_left > 0) {
        cond_wait(&cs.done, &cs.lock);
    }
    lock_drop(&cs.lock);
    cond_fini(&cs.done);
    lock_fini(&cs.lock);
    *out = cs.client;
    return cs.count > 0 ? merge(cs.client, cs.count) : 0;
}
