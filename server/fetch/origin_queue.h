/* origin_queue.h - limits the requests to one origin: how many at a time, its pauses, its rate; and
 * keeps its tokens.
 *
 * A request takes a slot. When all slots are taken or the origin is paused, it queues, and go() is
 * called at its turn. Clients take turns, and no client has all of several slots (fair_queue.h);
 * fetches for no client in particular count as one more client. A request without a reader may lend
 * its slot: it is asked to give it up when others wait.
 *
 * owns     an origin queue holds its origin; it is freed once no other code uses the origin,
 *          nothing is under way and no pause is left
 * threads  the fetcher's
 */
#ifndef SERVER_FETCH_ORIGIN_QUEUE_H
#define SERVER_FETCH_ORIGIN_QUEUE_H

#include "common/base/fair_queue.h"
#include "server/fetch/origin.h"
#include "server/fetch/silence.h"

struct bearers;
struct event_base;
struct origin_queue;
struct xfer_loop;

struct origin_queue_slot { /* embedded in the request */
    struct fair_item item;
    /* May run inside origin_queue_enter() and origin_queue_leave(); the origin queue outlives
     * it. */
    void (*go)(struct origin_queue_slot *s);
    /* A lent slot is needed: the request must give it back, unless it continues after all. Called
     * from the loop. */
    void (*wanted)(struct origin_queue_slot *s);
    bool taken;
    struct list lent; /* in the origin queue's list */
};

/* alone: the origin queue serves one program and not clients; it may have all slots. */
struct origin_queue *origin_queue_find(struct list *origin_queues, struct event_base *base,
                                       const struct origin *o, bool alone);
void origin_queue_enter(struct origin_queue *l, struct origin_queue_slot *s, uint64_t client);
/* Another client needs the same: the slot is given at the turn of whichever comes first. No effect
 * when the slot is taken. */
void origin_queue_move(struct origin_queue *l, struct origin_queue_slot *s, uint64_t client);
/* yes: the slot, which is taken, may be asked for by wanted(), once. no: not any more. */
void origin_queue_lend(struct origin_queue *l, struct origin_queue_slot *s, bool yes);
/* Gives the slot back, or leaves the queue. A second call has no effect. */
void origin_queue_leave(struct origin_queue *l, struct origin_queue_slot *s);
/* Pauses requests for so long: 429, 503, a spent budget. Never more than five minutes. */
void origin_queue_rest(struct origin_queue *l, uint64_t ms);
uint64_t origin_queue_resting_ms(const struct origin_queue *l);
/* How long to pause after n more bytes, to keep the origin's rate limit. */
uint64_t origin_queue_spend(struct origin_queue *l, size_t n);
/* Whether the origin's own host answers. */
struct silence *origin_queue_silence(struct origin_queue *l);
/* The tokens that its origin has issued; opened when they are first needed. */
struct bearers *origin_queue_bearers(struct origin_queue *l, struct xfer_loop *xfers);
void origin_queue_drop_if_idle(struct origin_queue *l); /* may free it */
void origin_queues_close(struct list *origin_queues);   /* no request is under way */

#endif
