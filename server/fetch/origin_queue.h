/* origin_queue.h - what we owe one origin, and what it gave us: so many requests at once, the rest
 * that it asked for, its rate; its tokens.
 *
 * A request takes a slot; when all are taken or the origin rests it queues, and go() is called when
 * its turn comes. Clients take turns, and no client has all of several slots (fair_queue.h); what
 * is fetched for nobody in particular is one more client. A request that pauses because nobody
 * reads may lend its slot: it is asked for it when others wait.
 *
 * owns     an origin queue holds its origin; it goes by itself once nobody else does and nothing is
 *          owed
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

struct origin_queue_slot { /* in the request */
    struct fair_item item;
    /* May run inside origin_queue_enter() and origin_queue_leave(); the origin queue outlives
     * it. */
    void (*go)(struct origin_queue_slot *s);
    /* A slot that is lent is wanted: it is to be given back, unless the request goes on after all.
     * From the loop. */
    void (*wanted)(struct origin_queue_slot *s);
    bool taken;
    struct list lent; /* among the origin queue's */
};

/* alone: the origin queue is no client's but one program's, which may have all slots. */
struct origin_queue *origin_queue_find(struct list *origin_queues, struct event_base *base,
                                       const struct origin *o, bool alone);
void origin_queue_enter(struct origin_queue *l, struct origin_queue_slot *s, uint64_t client);
/* Another client wants the same: the slot is given in whichever's turn comes first. Harmless when
 * it is taken. */
void origin_queue_move(struct origin_queue *l, struct origin_queue_slot *s, uint64_t client);
/* The slot, which is taken, may be asked for by wanted(), once; or not any more. */
void origin_queue_lend(struct origin_queue *l, struct origin_queue_slot *s, bool yes);
/* Gives the slot back, or leaves the queue; harmless twice. */
void origin_queue_leave(struct origin_queue *l, struct origin_queue_slot *s);
/* No request for so long: 429, 503, a spent budget. Never more than five minutes. */
void origin_queue_rest(struct origin_queue *l, uint64_t ms);
uint64_t origin_queue_resting_ms(const struct origin_queue *l);
/* How long to pause for the origin's rate limit after n more bytes. */
uint64_t origin_queue_spend(struct origin_queue *l, size_t n);
/* Does the origin's own host answer? */
struct silence *origin_queue_silence(struct origin_queue *l);
/* The tokens that its origin has given; opened when first asked for. */
struct bearers *origin_queue_bearers(struct origin_queue *l, struct xfer_loop *xfers);
void origin_queue_drop_if_idle(struct origin_queue *l); /* may free it */
void origin_queues_close(struct list *origin_queues);   /* nothing may be under way */

#endif
