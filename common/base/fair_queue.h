/* fair_queue.h - one queue that many clients share: deficit round robin, and a bound on what one
 * client has running.
 *
 * The items of one client keep their order. fair_queue_pop() goes round the clients that have
 * something waiting: at each turn a client gets a quantum of cost, and what it cannot use yet it
 * keeps for its next turn. So a client waits for one turn of every other client, however many items
 * the others have queued. CLIENT_PROGRAM is the program itself: it takes turns like the others, and
 * has no bound on what runs.
 *
 * source   Shreedhar and Varghese, "Efficient Fair Queuing Using Deficit Round Robin", SIGCOMM 1995
 * owns     items are the caller's, embedded in what they stand for; the queue has a flow for each
 *          client with an item
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
    unsigned running_max; /* of one client; 0: any number, and nothing is counted as running */
    unsigned waiting, spares, clients;
};

void fair_queue_init(struct fair_queue *q, uint64_t quantum, unsigned running_max);
void fair_queue_fini(struct fair_queue *q); /* nothing waits or runs */
/* cost >= 1, in the unit of the quantum. */
void fair_queue_push(struct fair_queue *q, struct fair_item *it, uint64_t client, uint64_t cost);
/* The next one, or NULL: none waits, or all that wait are of clients that have running_max running.
 * It runs until fair_queue_leave(), when running_max is set. */
struct fair_item *fair_queue_pop(struct fair_queue *q);
/* It waits or runs no longer; harmless when it did neither. */
void fair_queue_leave(struct fair_queue *q, struct fair_item *it);
/* Another client wants the same: the item goes to that client's items when it is served sooner
 * there. It stays where it is when it does not wait. True: it has moved. */
bool fair_queue_move(struct fair_queue *q, struct fair_item *it, uint64_t client);
/* Items of this client that wait. */
unsigned fair_queue_waiting(const struct fair_queue *q, uint64_t client);
static inline bool fair_queue_ready(const struct fair_queue *q)
{
    return !list_empty(&q->turns);
}
/* Of n workers or seats, how many one client may have at once: a sixteenth, and at least one, stays
 * for the others. A single one is for all. */
static inline unsigned fair_share_of_one(unsigned n)
{
    return n < 2 ? n : n - (n < 32 ? 1 : n / 16);
}

/* Clients that want one piece of work. The first one it is queued for, to the others it may
 * move. */
enum { FAIR_CLIENTS_MAX = 4 };
struct fair_clients {
    uint64_t client[FAIR_CLIENTS_MAX];
    unsigned count;
};
/* False: it is one of them already, or they are as many as are noted. */
bool fair_clients_add(struct fair_clients *s, uint64_t client);

#endif
