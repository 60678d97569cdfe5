#include "server/fetch/crowd.h"

#include <stdlib.h>

#include <uthash.h>

struct crowd_account {
    UT_hash_handle hh;
    uint64_t client;
    uint32_t nplaces, nasks;
    struct list places, asks;
};

static struct crowd_account *find_crowd_account(const struct crowd *w, uint64_t client)
{
    struct crowd_account *a = NULL;

    HASH_FIND(hh, w->accounts, &client, sizeof client, a);
    return a;
}

static struct crowd_account *account_of(struct crowd *w, uint64_t client)
{
    struct crowd_account *a = find_crowd_account(w, client);

    if (a == NULL) {
        a = NEW(struct crowd_account);
        a->client = client;
        list_init(&a->places);
        list_init(&a->asks);
        HASH_ADD(hh, w->accounts, client, sizeof a->client, a);
    }
    return a;
}

static void free_empty_account(struct crowd *w, struct crowd_account *a)
{
    if (a->nplaces == 0 && a->nasks == 0) {
        HASH_DEL(w->accounts, a);
        free(a);
    }
}

uint64_t crowd_client(const struct crowd_account *a)
{
    return a->client;
}

static struct crowd_account *most_places(const struct crowd *w)
{
    struct crowd_account *most = w->accounts;

    for (struct crowd_account *a = w->accounts; a != NULL; a = a->hh.next) {
        most = a->nplaces > most->nplaces ? a : most;
    }
    return most;
}

static struct crowd_account *most_asks(const struct crowd *w)
{
    struct crowd_account *most = w->accounts;

    for (struct crowd_account *a = w->accounts; a != NULL; a = a->hh.next) {
        most = a->nasks > most->nasks ? a : most;
    }
    return most;
}

static uint64_t asks_max(const struct crowd *w)
{
    return (uint64_t)w->places_max * CROWD_ASKS;
}

/* Has it less than one of the others, with this one, too? Else nobody is to give for it. */
bool crowd_admits(const struct crowd *w, uint64_t client, bool new_place)
{
    const struct crowd_account *a = find_crowd_account(w, client);
    uint32_t places = a != NULL ? a->nplaces : 0;
    uint32_t asks = a != NULL ? a->nasks : 0;
    uint32_t share = crowd_share_of_one(w->places_max);

    if ((new_place && places >= share) || asks >= (uint64_t)share * CROWD_ASKS) {
        return false;
    }
    if (new_place && w->places >= w->places_max && places + 1 >= most_places(w)->nplaces) {
        return false;
    }
    return w->asks < asks_max(w) || asks + 1 < most_asks(w)->nasks;
}

void crowd_come(struct crowd *w, struct crowd_ask *k, uint64_t client)
{
    k->account = account_of(w, client);
    k->account->nasks++;
    w->asks++;
    list_push_back(&k->account->asks, &k->node);
}

void crowd_go(struct crowd *w, struct crowd_ask *k)
{
    struct crowd_account *a = k->account;

    k->account = NULL;
    a->nasks--;
    w->asks--;
    list_remove(&k->node);
    free_empty_account(w, a);
}

void crowd_take(struct crowd *w, struct crowd_place *p, uint64_t client)
{
    if (p->account != NULL && p->account->client == client) {
        return;
    }
    if (p->account != NULL) {
        crowd_give(w, p);
    }
    p->account = account_of(w, client);
    p->account->nplaces++;
    w->places++;
    list_push_back(&p->account->places, &p->node);
}

void crowd_give(struct crowd *w, struct crowd_place *p)
{
    struct crowd_account *a = p->account;

    p->account = NULL;
    a->nplaces--;
    w->places--;
    list_remove(&p->node);
    free_empty_account(w, a);
}

struct crowd_place *crowd_place_over(const struct crowd *w)
{
    if (w->places <= w->places_max) {
        return NULL;
    }
    return LIST_ITEM(most_places(w)->places.prev, struct crowd_place, node);
}

struct crowd_ask *crowd_ask_over(const struct crowd *w)
{
    if (w->asks <= asks_max(w)) {
        return NULL;
    }
    return LIST_ITEM(most_asks(w)->asks.prev, struct crowd_ask, node);
}
