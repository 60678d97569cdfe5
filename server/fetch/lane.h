/* lane.h - what we owe one origin, and what it gave us: so many requests at once, the rest that it asked for, its rate; its tokens.
 *
 * A request takes a seat; when all are taken or the origin rests it queues, and go() is called when its turn comes. Clients take
 * turns, and no client has all of several seats (fair_queue.h); what is fetched for nobody in particular is one more client.
 * A request that pauses because nobody reads may lend its seat: it is asked for it when others wait.
 *
 * owns     a lane holds its origin; it goes by itself once nobody else does and nothing is owed
 * threads  the fetcher's
 */
#ifndef SERVER_FETCH_LANE_H
#define SERVER_FETCH_LANE_H

#include "common/base/fair_queue.h"
#include "server/fetch/origin.h"
#include "server/fetch/silence.h"

struct bearers;
struct event_base;
struct lane;
struct xfer_loop;

struct lane_seat { /* in the request */
    struct fair_item item;
    /* May run inside lane_queue() and lane_leave(); the lane outlives it. */
    void (*go)(struct lane_seat *s);
    /* A seat that is lent is wanted: it is to be given back, unless the request goes on after all. From the loop. */
    void (*wanted)(struct lane_seat *s);
    bool taken;
    struct list lent; /* among the lane's */
};

/* alone: the lane is no client's but one program's, which may have all seats. */
struct lane *lane_find(struct list *lanes, struct event_base *base, const struct origin *o,
                       bool alone);
void lane_queue(struct lane *l, struct lane_seat *s, uint64_t client);
/* Another client wants the same: the seat is given in whichever's turn comes first. Harmless when it is taken. */
void lane_move(struct lane *l, struct lane_seat *s, uint64_t client);
/* The seat, which is taken, may be asked for by wanted(), once; or not any more. */
void lane_lend(struct lane *l, struct lane_seat *s, bool yes);
/* Gives the seat back, or leaves the queue; harmless twice. */
void lane_leave(struct lane *l, struct lane_seat *s);
/* No request for so long: 429, 503, a spent budget. Never more than five minutes. */
void lane_rest(struct lane *l, uint64_t ms);
uint64_t lane_resting_ms(const struct lane *l);
/* How long to pause for the origin's rate limit after n more bytes. */
uint64_t lane_spend(struct lane *l, size_t n);
/* Does the origin's own host answer? */
struct silence *lane_silence(struct lane *l);
/* The tokens that its origin has given; opened when first asked for. */
struct bearers *lane_bearers(struct lane *l, struct xfer_loop *xfers);
void lane_drop_if_idle(struct lane *l); /* may free it */
void lanes_close(struct list *lanes);   /* nothing may be under way */

#endif
