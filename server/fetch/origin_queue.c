#include "server/fetch/origin_queue.h"

#include <event2/event.h>
#include <stdlib.h>

#include "common/os/clock.h"
#include "server/fetch/bearer.h"
#include "server/fetch/origin_priv.h"

enum { CLIENT_NONE = 1 }; /* prefetches: a client like others, with a bound of its own */

struct origin_queue {
    struct list node;
    struct origin *origin; /* held */
    unsigned active;
    bool pumping;
    bool alone;
    uint64_t blocked_until_ms; /* it asked for rest */
    struct fair_queue queue;   /* of slots */
    struct list lent;          /* slots */
    struct event *timer;
    int64_t credit_bytes;    /* of the rate limit */
    uint64_t credit_ms;      /* when it was counted last */
    struct bearers *bearers; /* or NULL */
    struct silence silence;
};

/* This mirror's part of what all mirrors of a cluster may use together. */
static uint64_t origin_part(const struct origin_queue *l, uint64_t all)
{
    uint32_t mirrors = atomic_load_explicit(&l->origin->mirrors, memory_order_relaxed);

    return l->alone || mirrors < 2 || all == 0 ? all : (all + mirrors - 1) / mirrors;
}

/* Whose go() gives its slot back at once, or queues another, is within: no deeper than that,
 * however many wait. */
static void pump(struct origin_queue *l)
{
    if (l->pumping) {
        return;
    }
    l->pumping = true;
    while (fair_queue_ready(&l->queue) && l->active < origin_part(l, l->origin->connections)) {
        uint64_t rest_ms = origin_queue_resting_ms(l);
        struct origin_queue_slot *s;
        if (rest_ms > 0) {
            struct timeval tv = clock_timeval(rest_ms);
            evtimer_add(l->timer, &tv);
            break;
        }
        s = CONTAINER_OF(fair_queue_pop(&l->queue), struct origin_queue_slot, item);
        l->active++;
        s->taken = true;
        s->go(s);
    }
    l->pumping = false;
}

static bool wants_lent(const struct origin_queue *l)
{
    return l->queue.waiting > 0 && !list_empty(&l->lent);
}

/* From the loop alone: who gives a slot back may be asked for it in the midst of something. */
static void call_in_lent(struct origin_queue *l)
{
    struct origin *held = origin_hold(l->origin); /* and so the origin queue */

    while (wants_lent(l) && origin_queue_resting_ms(l) == 0) {
        struct origin_queue_slot *s =
            LIST_ITEM(list_pop_front(&l->lent), struct origin_queue_slot, lent);
        s->wanted(s);
    }
    origin_free(&held);
}

static void call_in_soon(struct origin_queue *l)
{
    struct timeval now = {0, 0};

    if (wants_lent(l)) {
        evtimer_add(l->timer, &now);
    }
}

static void on_origin_queue_timer(evutil_socket_t fd, short what, void *arg)
{
    struct origin_queue *l = arg;

    (void)fd;
    (void)what;
    pump(l);
    call_in_lent(l);
}

static void origin_queue_free(struct origin_queue *l)
{
    list_remove(&l->node);
    event_free(l->timer);
    fair_queue_fini(&l->queue);
    bearers_close(&l->bearers);
    origin_free(&l->origin);
    free(l);
}

/* One that rests is kept: forgetting it would forget what the origin asked for. */
void origin_queue_drop_if_idle(struct origin_queue *l)
{
    if (l->active == 0 && l->queue.waiting == 0 && origin_queue_resting_ms(l) == 0 &&
        atomic_load(&l->origin->refs) == 1 && (l->bearers == NULL || !bearers_busy(l->bearers))) {
        origin_queue_free(l);
    }
}

struct bearers *origin_queue_bearers(struct origin_queue *l, struct xfer_loop *xfers)
{
    if (l->bearers == NULL) {
        l->bearers = bearers_open(xfers, l->origin);
    }
    return l->bearers;
}

struct silence *origin_queue_silence(struct origin_queue *l)
{
    return &l->silence;
}

struct origin_queue *origin_queue_find(struct list *origin_queues, struct event_base *base,
                                       const struct origin *o, bool alone)
{
    struct origin_queue *l;

    LIST_EACH (origin_queues, it) {
        l = LIST_ITEM(it, struct origin_queue, node);
        if (l->origin == o) {
            return l;
        }
    }
    LIST_EACH (origin_queues,
               it) { /* a reload has brought new origins: the old ones' origin queues may go */
        origin_queue_drop_if_idle(LIST_ITEM(it, struct origin_queue, node));
    }
    l = NEW(struct origin_queue);
    l->origin = origin_hold(o);
    l->alone = alone;
    fair_queue_init(&l->queue, 1, alone ? 0 : fair_share_of_one(o->connections));
    list_init(&l->lent);
    l->timer = evtimer_new(base, on_origin_queue_timer, l);
    CHECK(l->timer != NULL);
    list_push_back(origin_queues, &l->node);
    return l;
}

static uint64_t name_of_queue_client(uint64_t client)
{
    return client != CLIENT_PROGRAM ? client : CLIENT_NONE;
}

void origin_queue_enter(struct origin_queue *l, struct origin_queue_slot *s, uint64_t client)
{
    fair_queue_push(&l->queue, &s->item, name_of_queue_client(client), 1);
    pump(l);
    call_in_soon(l);
}

void origin_queue_move(struct origin_queue *l, struct origin_queue_slot *s, uint64_t client)
{
    if (fair_queue_move(&l->queue, &s->item, name_of_queue_client(client))) {
        pump(l);
    }
}

void origin_queue_lend(struct origin_queue *l, struct origin_queue_slot *s, bool yes)
{
    list_remove_if(&s->lent);
    if (yes && s->taken) {
        list_push_back(&l->lent, &s->lent);
        call_in_soon(l);
    }
}

void origin_queue_leave(struct origin_queue *l, struct origin_queue_slot *s)
{
    list_remove_if(&s->lent);
    fair_queue_leave(&l->queue, &s->item);
    if (s->taken) {
        s->taken = false;
        l->active--;
        pump(l);
    }
}

void origin_queue_rest(struct origin_queue *l, uint64_t ms)
{
    uint64_t until = clock_now_ms() + min_u64(ms, ORIGIN_REST_MAX_MS);

    if (ms > origin_asked_rest_ms(l->origin)) {
        atomic_store_explicit(&l->origin->asked_until_ms, until, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&l->origin->count->throttled, 1, memory_order_relaxed);
    l->blocked_until_ms = max_u64(l->blocked_until_ms, until);
}

uint64_t origin_queue_resting_ms(const struct origin_queue *l)
{
    uint64_t now = clock_now_ms();
    uint64_t reported = atomic_load_explicit(&l->origin->reported_until_ms, memory_order_relaxed);
    uint64_t until = max_u64(l->blocked_until_ms, reported);

    return until > now ? until - now : 0;
}

uint64_t origin_queue_spend(struct origin_queue *l, size_t n)
{
    int64_t rate = (int64_t)origin_part(l, l->origin->rate_bytes_per_s);
    uint64_t now = clock_now_ms();

    if (rate == 0) {
        return 0;
    }
    l->credit_bytes += (int64_t)min_u64(now - l->credit_ms, 1000) * rate / 1000;
    l->credit_bytes = l->credit_bytes > rate / 4 ? rate / 4 : l->credit_bytes;
    l->credit_ms = now;
    l->credit_bytes -= (int64_t)n;
    return l->credit_bytes >= 0 ? 0 : (uint64_t)(-l->credit_bytes * 1000 / rate) + 1;
}

void origin_queues_close(struct list *origin_queues)
{
    LIST_EACH (origin_queues, it) {
        struct origin_queue *l = LIST_ITEM(it, struct origin_queue, node);
        CHECK(l->active == 0 && l->queue.waiting == 0);
        origin_queue_free(l);
    }
}
