/* fair_queue.h - a queue that many clients share: deficit round robin, and a limit on what one
 * client has running.
 *
 * The items of one client keep their order. fair_queue_pop() goes around the clients with waiting
 * items. At each turn a client gets a quantum of cost, and keeps what it cannot use yet for its
 * next turn. So a client waits for one turn of every other client, however many items the others
 * have queued. CLIENT_PROGRAM is the program itself: it takes turns like the others, and has no
 * limit on what runs.
 *
 * source   Shreedhar and Varghese, "Efficient Fair Queuing Using Deficit Round Robin", SIGCOMM
 *          1995
 * owns     items are the caller's, embedded in the objects that wait; the queue has a flow for
 *          each client with an item
 * threads  one at a time: the caller's lock, or one thread
 */
#ifndef COMMON_BASE_FAIR_QUEUE_H
#define COMMON_BASE_FAIR_QUEUE_H

#include "common/base/list.h"

struct fair_flow;

#define CLIENT_PROGRAM ((uint64_t)0)

struct fair_item {
    struct list node;       /* linked: it waits */
    struct fair_flow *flow; /* its client's, while it waits or runs; NULL: neither */
    uint64_t cost;
    uint64_t number; /* in the order of its flow */
};

struct fair_queue {
    struct fair_flow *flows; /* by client (uthash) */
    struct list turns;       /* flows that may be served, the next one first */
    struct list spare;       /* flows for reuse */
    uint64_t quantum;
    unsigned running_max; /* of one client; 0: unlimited, and running items are not counted */
    unsigned waiting, spares, clients;
};

void fair_queue_init(struct fair_queue *q, uint64_t quantum, unsigned running_max);
void fair_queue_fini(struct fair_queue *q); /* nothing waits or runs */
/* cost >= 1, in the unit of the quantum. */
void fair_queue_push(struct fair_queue *q, struct fair_item *it, uint64_t client, uint64_t cost);
/* The next one, or NULL: none waits, or only clients that have running_max running wait. With
 * running_max set, it runs until fair_queue_leave(). */
struct fair_item *fair_queue_pop(struct fair_queue *q);
/* It neither waits nor runs any longer; has no effect when it did neither. */
void fair_queue_leave(struct fair_queue *q, struct fair_item *it);
/* Another client needs the same item: it moves to that client if it is served sooner there. An
 * item that does not wait stays. True: it has moved. */
bool fair_queue_move(struct fair_queue *q, struct fair_item *it, uint64_t client);
/* Waiting items of this client. */
unsigned fair_queue_waiting(const struct fair_queue *q, uint64_t client);
static inline bool fair_queue_ready(const struct fair_queue *q)
{
    return !list_empty(&q->turns);
}
/* How many of n workers or slots one client may have at the same time: all but a sixteenth, which
 * is at least one. A single one is for all. */
static inline unsigned fair_share_of_one(unsigned n)
{
    return n < 2 ? n : n - (n < 32 ? 1 : n / 16);
}

/* Clients that need one piece of work. It is queued for the first one and may move to the others.
 */
enum { FAIR_CLIENTS_MAX = 4 };
struct fair_clients {
    uint64_t client[FAIR_CLIENTS_MAX];
    unsigned count;
};
/* False: it is already in the set, or the set is full. */
bool fair_clients_add(struct fair_clients *s, uint64_t client);

#endif
