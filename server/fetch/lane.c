#include "server/fetch/lane.h"

#include <event2/event.h>
#include <stdlib.h>

#include "common/os/clock.h"
#include "server/fetch/bearer.h"
#include "server/fetch/origin_priv.h"

enum { BLOCK_MAX_MS = 300000 }; /* no origin silences us for longer */

enum { CLIENT_NONE = 1 }; /* prefetches: a client like others, with a bound of its own */

struct lane {
    struct list node;
    struct origin *origin; /* held */
    unsigned active;
    bool pumping;
    uint64_t blocked_until_ms; /* it asked for rest */
    struct fair_queue queue;   /* of seats */
    struct list lent;          /* seats */
    struct event *timer;
    int64_t credit_bytes;    /* of the rate limit */
    uint64_t credit_ms;      /* when it was counted last */
    struct bearers *bearers; /* or NULL */
    struct silence silence;
};

/* Whose go() gives its seat back at once, or queues another, is within: no deeper than that, however many wait. */
static void pump(struct lane *l)
{
    if (l->pumping) {
        return;
    }
    l->pumping = true;
    while (fair_queue_ready(&l->queue) && l->active < l->origin->connections) {
        uint64_t rest_ms = lane_resting_ms(l);
        struct lane_seat *s;
        if (rest_ms > 0) {
            struct timeval tv = clock_timeval(rest_ms);
            evtimer_add(l->timer, &tv);
            break;
        }
        s = CONTAINER_OF(fair_queue_pop(&l->queue), struct lane_seat, item);
        l->active++;
        s->taken = true;
        s->go(s);
    }
    l->pumping = false;
}

static bool wants_lent(const struct lane *l)
{
    return l->queue.waiting > 0 && !list_empty(&l->lent);
}

/* From the loop alone: who gives a seat back may be asked for it in the midst of something. */
static void call_in_lent(struct lane *l)
{
    struct origin *held = origin_hold(l->origin); /* and so the lane */

    while (wants_lent(l) && lane_resting_ms(l) == 0) {
        struct lane_seat *s = LIST_ITEM(list_pop_front(&l->lent), struct lane_seat, lent);
        s->wanted(s);
    }
    origin_free(&held);
}

static void call_in_soon(struct lane *l)
{
    struct timeval now = {0, 0};

    if (wants_lent(l)) {
        evtimer_add(l->timer, &now);
    }
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct lane *l = arg;

    (void)fd;
    (void)what;
    pump(l);
    call_in_lent(l);
}

static void lane_free(struct lane *l)
{
    list_remove(&l->node);
    event_free(l->timer);
    fair_queue_fini(&l->queue);
    bearers_close(&l->bearers);
    origin_free(&l->origin);
    free(l);
}

/* One that rests is kept: forgetting it would forget what the origin asked for. */
void lane_drop_if_idle(struct lane *l)
{
    if (l->active == 0 && l->queue.waiting == 0 && lane_resting_ms(l) == 0 &&
        atomic_load(&l->origin->refs) == 1 && (l->bearers == NULL || !bearers_busy(l->bearers))) {
        lane_free(l);
    }
}

struct bearers *lane_bearers(struct lane *l, struct xfer_loop *xfers)
{
    if (l->bearers == NULL) {
        l->bearers = bearers_open(xfers, l->origin);
    }
    return l->bearers;
}

struct silence *lane_silence(struct lane *l)
{
    return &l->silence;
}

struct lane *lane_find(struct list *lanes, struct event_base *base, const struct origin *o,
                       bool alone)
{
    struct lane *l;

    LIST_EACH (lanes, it) {
        l = LIST_ITEM(it, struct lane, node);
        if (l->origin == o) {
            return l;
        }
    }
    LIST_EACH (lanes, it) { /* a reload has brought new origins: the old ones' lanes may go */
        lane_drop_if_idle(LIST_ITEM(it, struct lane, node));
    }
    l = NEW(struct lane);
    l->origin = origin_hold(o);
    fair_queue_init(&l->queue, 1, alone ? 0 : fair_share_of_one(o->connections));
    list_init(&l->lent);
    l->timer = evtimer_new(base, on_timer, l);
    CHECK(l->timer != NULL);
    list_push_back(lanes, &l->node);
    return l;
}

static uint64_t name_of(uint64_t client)
{
    return client != CLIENT_PROGRAM ? client : CLIENT_NONE;
}

void lane_queue(struct lane *l, struct lane_seat *s, uint64_t client)
{
    fair_queue_push(&l->queue, &s->item, name_of(client), 1);
    pump(l);
    call_in_soon(l);
}

void lane_move(struct lane *l, struct lane_seat *s, uint64_t client)
{
    if (fair_queue_move(&l->queue, &s->item, name_of(client))) {
        pump(l);
    }
}

void lane_lend(struct lane *l, struct lane_seat *s, bool yes)
{
    list_remove_if(&s->lent);
    if (yes && s->taken) {
        list_push_back(&l->lent, &s->lent);
        call_in_soon(l);
    }
}

void lane_leave(struct lane *l, struct lane_seat *s)
{
    list_remove_if(&s->lent);
    fair_queue_leave(&l->queue, &s->item);
    if (s->taken) {
        s->taken = false;
        l->active--;
        pump(l);
    }
}

void lane_rest(struct lane *l, uint64_t ms)
{
    uint64_t until = clock_now_ms() + min_u64(ms, BLOCK_MAX_MS);

    atomic_fetch_add_explicit(&l->origin->count->throttled, 1, memory_order_relaxed);
    l->blocked_until_ms = max_u64(l->blocked_until_ms, until);
}

uint64_t lane_resting_ms(const struct lane *l)
{
    uint64_t now = clock_now_ms();

    return l->blocked_until_ms > now ? l->blocked_until_ms - now : 0;
}

uint64_t lane_spend(struct lane *l, size_t n)
{
    int64_t rate = (int64_t)l->origin->rate_bytes_per_s;
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

void lanes_close(struct list *lanes)
{
    LIST_EACH (lanes, it) {
        struct lane *l = LIST_ITEM(it, struct lane, node);
        CHECK(l->active == 0 && l->queue.waiting == 0);
        lane_free(l);
    }
}
