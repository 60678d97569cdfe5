/* crowd.h - limits the requests that wait for an origin's first byte: for all clients together, and
 * for each one.
 *
 * Requests (asks) wait at a place, for example an object. Any number of asks may wait at one place,
 * and a place is on the account of one of the clients that wait there. When all places are taken,
 * or too many asks wait, the client with the most loses one first.
 *
 * owns     places and asks are the caller's, embedded in its structs; the crowd has an account for
 *          each client
 * threads  one: the cache's fetch thread
 */
#ifndef SERVER_FETCH_CROWD_H
#define SERVER_FETCH_CROWD_H

#include "common/base/list.h"

struct crowd_account;

struct crowd_place {
    struct list node;              /* of its account, the oldest first */
    struct crowd_account *account; /* NULL: no ask waits there */
};

struct crowd_ask {
    struct list node;
    struct crowd_account *account;
};

struct crowd {
    uint32_t places_max; /* for all clients; the limit of asks is CROWD_ASKS times as many */
    uint32_t places, asks;
    struct crowd_account *accounts; /* by client (uthash) */
};
enum { CROWD_ASKS = 8, CROWD_SHARE = 4, CROWD_SHARE_LEAST = 16 };

/* How many places one client may have: a quarter of all, but at least a minimum. */
static inline uint32_t crowd_share_of_one(uint32_t places_max)
{
    uint32_t share = places_max / CROWD_SHARE;

    share = share < CROWD_SHARE_LEAST ? CROWD_SHARE_LEAST : share;
    return share < places_max ? share : places_max;
}

/* May this client wait, at a new place or at an existing one? If it may although the crowd is full,
 * another client has to give way: crowd_place_over() and crowd_ask_over() say which, once this one
 * has come. */
bool crowd_admits(const struct crowd *w, uint64_t client, bool new_place);
void crowd_come(struct crowd *w, struct crowd_ask *k, uint64_t client);
void crowd_go(struct crowd *w, struct crowd_ask *k);
/* Puts the place on this client's account; before it was on none, or on another's. */
void crowd_take(struct crowd *w, struct crowd_place *p, uint64_t client);
void crowd_give(struct crowd *w, struct crowd_place *p);
uint64_t crowd_client(const struct crowd_account *a);
/* When there are more than allowed: the latest of the client with the most. NULL: there are not. */
struct crowd_place *crowd_place_over(const struct crowd *w);
struct crowd_ask *crowd_ask_over(const struct crowd *w);

#endif
