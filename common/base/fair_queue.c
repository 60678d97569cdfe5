#include "common/base/fair_queue.h"

#include <stdlib.h>

#include <uthash.h>

enum { SPARES_MAX = 64 };

struct fair_flow {
    UT_hash_handle hh;
    uint64_t client;
    struct list turn;  /* among the queue's turns, or spare */
    struct list items; /* that wait */
    uint64_t deficit;  /* cost that may be served before its turn ends */
    bool in_turn;      /* the turn has begun: its quantum was given */
    unsigned running, waiting;
    uint64_t pushed; /* numbers the items */
};

void fair_queue_init(struct fair_queue *q, uint64_t quantum, unsigned running_max)
{
    CHECK(quantum > 0);
    *q = (struct fair_queue){.quantum = quantum, .running_max = running_max};
    list_init(&q->turns);
    list_init(&q->spare);
}

void fair_queue_fini(struct fair_queue *q)
{
    struct list *n;

    CHECK(q->flows == NULL && q->waiting == 0);
    while ((n = list_pop_front(&q->spare)) != NULL) {
        free(LIST_ITEM(n, struct fair_flow, turn));
    }
    q->spares = 0;
}

static struct fair_flow *flow_of(struct fair_queue *q, uint64_t client)
{
    struct fair_flow *f = NULL;

    HASH_FIND(hh, q->flows, &client, sizeof client, f);
    if (f != NULL) {
        return f;
    }
    if (list_empty(&q->spare)) {
        f = NEW(struct fair_flow);
        list_init(&f->items);
    } else {
        f = LIST_ITEM(list_pop_front(&q->spare), struct fair_flow, turn);
        q->spares--;
    }
    f->client = client;
    f->deficit = 0;
    f->in_turn = false;
    f->running = f->waiting = 0;
    f->pushed = 0;
    HASH_ADD(hh, q->flows, client, sizeof f->client, f);
    q->clients++;
    return f;
}

static bool fair_flow_has_room(const struct fair_queue *q, const struct fair_flow *f)
{
    return q->running_max == 0 || f->client == CLIENT_PROGRAM || f->running < q->running_max;
}

/* A flow is in the turns while it has an item that may run, and goes when it has none at all. */
static void update_fair_flow(struct fair_queue *q, struct fair_flow *f)
{
    bool may_run = !list_empty(&f->items) && fair_flow_has_room(q, f);

    if (may_run && !list_linked(&f->turn)) {
        list_push_back(&q->turns, &f->turn);
    } else if (!may_run && list_linked(&f->turn)) {
        list_remove(&f->turn);
        f->in_turn = false;
    }
    if (!list_empty(&f->items)) {
        return;
    }
    f->deficit = 0; /* credit is for those who wait */
    if (f->running == 0) {
        HASH_DEL(q->flows, f);
        q->clients--;
        if (q->spares < SPARES_MAX) {
            q->spares++;
            list_push_front(&q->spare, &f->turn);
        } else {
            free(f);
        }
    }
}

unsigned fair_queue_waiting(const struct fair_queue *q, uint64_t client)
{
    struct fair_flow *f = NULL;

    HASH_FIND(hh, q->flows, &client, sizeof client, f);
    return f != NULL ? f->waiting : 0;
}

void fair_queue_push(struct fair_queue *q, struct fair_item *it, uint64_t client, uint64_t cost)
{
    struct fair_flow *f = flow_of(q, client);

    CHECK(it->flow == NULL && cost > 0);
    it->flow = f;
    it->cost = cost;
    it->number = f->pushed++;
    list_push_back(&f->items, &it->node);
    f->waiting++;
    q->waiting++;
    update_fair_flow(q, f);
}

/* An item that costs many quanta is served after as many rounds; the rounds in which no item can be
 * served are given at once, not walked. */
static void give_rounds(struct fair_queue *q)
{
    uint64_t least = UINT64_MAX;

    LIST_EACH (&q->turns, n) {
        struct fair_flow *f = LIST_ITEM(n, struct fair_flow, turn);
        uint64_t cost = LIST_ITEM(f->items.next, struct fair_item, node)->cost;
        uint64_t lacks = cost > f->deficit ? cost - f->deficit : 0;
        uint64_t rounds = (lacks + q->quantum - 1) / q->quantum;
        least = rounds < least ? rounds : least;
    }
    LIST_EACH (&q->turns, n) {
        LIST_ITEM(n, struct fair_flow, turn)->deficit += least * q->quantum;
    }
}

static struct fair_flow *next_flow(struct fair_queue *q)
{
    unsigned looked = 0;

    for (;;) {
        struct fair_flow *f = LIST_ITEM(q->turns.next, struct fair_flow, turn);
        if (!f->in_turn) {
            f->in_turn = true;
            f->deficit += q->quantum;
        }
        if (LIST_ITEM(f->items.next, struct fair_item, node)->cost <= f->deficit) {
            return f;
        }
        f->in_turn = false;
        list_remove(&f->turn);
        list_push_back(&q->turns, &f->turn);
        if (++looked > q->clients) { /* a whole round without an item served */
            give_rounds(q);
            looked = 0;
        }
    }
}

struct fair_item *fair_queue_pop(struct fair_queue *q)
{
    struct fair_flow *f;
    struct fair_item *it;

    if (list_empty(&q->turns)) {
        return NULL;
    }
    f = next_flow(q);
    it = LIST_ITEM(list_pop_front(&f->items), struct fair_item, node);
    f->deficit -= it->cost;
    f->waiting--;
    q->waiting--;
    if (q->running_max != 0) {
        f->running++;
    } else {
        it->flow = NULL;
    }
    update_fair_flow(q, f);
    return it;
}

void fair_queue_leave(struct fair_queue *q, struct fair_item *it)
{
    struct fair_flow *f = it->flow;

    it->flow = NULL;
    if (f == NULL) {
        return;
    }
    if (list_linked(&it->node)) {
        list_remove(&it->node);
        f->waiting--;
        q->waiting--;
    } else {
        CHECK(f->running > 0);
        f->running--;
    }
    update_fair_flow(q, f);
}

/* Would the item, before which `ahead` others wait in `from`, be served sooner at the end of
 * `to`? */
static bool is_sooner(const struct fair_queue *q, const struct fair_flow *to,
                      const struct fair_flow *from, uint64_t ahead)
{
    bool room = to == NULL || fair_flow_has_room(q, to);

    if (room != fair_flow_has_room(q, from)) {
        return room;
    }
    return (to != NULL ? to->waiting : 0) < ahead;
}

bool fair_queue_move(struct fair_queue *q, struct fair_item *it, uint64_t client)
{
    struct fair_flow *from = it->flow;
    struct fair_flow *to = NULL;
    uint64_t ahead;

    if (from == NULL || !list_linked(&it->node) || from->client == client) {
        return false;
    }
    ahead = it->number - LIST_ITEM(from->items.next, struct fair_item, node)->number;
    HASH_FIND(hh, q->flows, &client, sizeof client, to);
    if (!is_sooner(q, to, from, ahead)) {
        return false;
    }
    fair_queue_leave(q, it);
    fair_queue_push(q, it, client, it->cost);
    return true;
}

bool fair_clients_add(struct fair_clients *s, uint64_t client)
{
    for (unsigned i = 0; i < s->count; i++) {
        if (s->client[i] == client) {
            return false;
        }
    }
    if (s->count == FAIR_CLIENTS_MAX) {
        return false;
    }
    s->client[s->count++] = client;
    return true;
}
