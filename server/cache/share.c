#include "server/cache/share.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <uthash.h>

#include "common/base/list.h"
#include "common/base/check.h"
#include "common/os/lock.h"

enum {
    STEP_S = 600,
    STEPS = 7,         /* the one that runs, and an hour before it */
    OBJECT_PART = 2,   /* of the quota, unless a setting says how much */
    RANGE_PART = 10,   /* of the quota */
    RANGE_ALL_PART = 2 /* of the quota, for all clients */
};

struct window {
    uint64_t step[STEPS]; /* which ten minutes are counted there */
    uint64_t bytes[STEPS];
};

struct client {
    UT_hash_handle hh;
    struct list node; /* in clients_by_use */
    uint64_t client;
    struct window wrote[SHARE_KINDS];
    struct list own; /* objects, the oldest first */
    uint64_t own_bytes;
};

struct contributed {
    UT_hash_handle hh;
    struct list node; /* in its client's */
    struct list age;  /* in objects_by_age */
    struct digest digest;
    uint64_t size_bytes;
    struct client *client;
};

struct share {
    struct lock lock;
    struct client *clients; /* by number */
    struct list clients_by_use;
    struct contributed *objects; /* by digest */
    struct list objects_by_age;
    struct window ranges; /* of all clients */
    _Atomic uint64_t client_bytes;
};

/* --- an hour ---------------------------------------------------------------------------------- */

static void window_add(struct window *w, uint64_t bytes, uint64_t now_s)
{
    uint64_t step = now_s / STEP_S;
    size_t i = step % STEPS;

    if (w->step[i] != step) {
        w->step[i] = step;
        w->bytes[i] = 0;
    }
    w->bytes[i] += bytes;
}

static uint64_t window_sum(const struct window *w, uint64_t now_s)
{
    uint64_t step = now_s / STEP_S;
    uint64_t sum = 0;

    for (size_t i = 0; i < STEPS; i++) {
        sum += w->step[i] + STEPS > step ? w->bytes[i] : 0;
    }
    return sum;
}

/* --- tables ----------------------------------------------------------------------------------- */

static struct client *client_find(struct share *s, uint64_t client)
{
    struct client *c;

    HASH_FIND(hh, s->clients, &client, sizeof client, c);
    return c;
}

static void object_free(struct share *s, struct contributed *o)
{
    o->client->own_bytes -= o->size_bytes;
    list_remove(&o->node);
    list_remove(&o->age);
    HASH_DELETE(hh, s->objects, o);
    free(o);
}

static void client_free(struct share *s, struct client *c)
{
    while (!list_empty(&c->own)) {
        object_free(s, LIST_ITEM(c->own.next, struct contributed, node));
    }
    list_remove(&c->node);
    HASH_DELETE(hh, s->clients, c);
    free(c);
}

/* The last one used. */
static struct client *client_of(struct share *s, uint64_t client)
{
    struct client *c = client_find(s, client);

    if (c != NULL) {
        list_remove(&c->node);
    } else {
        if (HASH_COUNT(s->clients) >= SHARE_CLIENTS) {
            client_free(s, LIST_ITEM(s->clients_by_use.next, struct client, node));
        }
        c = NEW(struct client);
        c->client = client;
        list_init(&c->own);
        HASH_ADD(hh, s->clients, client, sizeof c->client, c);
    }
    list_push_back(&s->clients_by_use, &c->node);
    return c;
}

struct share *share_open(void)
{
    struct share *s = NEW(struct share);

    lock_init(&s->lock, LOCK_LEAF);
    list_init(&s->clients_by_use);
    list_init(&s->objects_by_age);
    return s;
}

void share_close(struct share **sp)
{
    struct share *s = *sp;

    *sp = NULL;
    if (s == NULL) {
        return;
    }
    while (!list_empty(&s->clients_by_use)) {
        client_free(s, LIST_ITEM(s->clients_by_use.next, struct client, node));
    }
    lock_fini(&s->lock);
    free(s);
}

/* --- what a client may write ------------------------------------------------------------------ */

void share_limit(struct share *s, uint64_t client_bytes)
{
    atomic_store(&s->client_bytes, client_bytes);
}

static uint64_t limit_of(struct share *s, enum share_kind kind, uint64_t quota_bytes)
{
    uint64_t set = atomic_load(&s->client_bytes);

    if (kind == SHARE_RANGE) {
        return quota_bytes / RANGE_PART;
    }
    return set != 0 ? set : quota_bytes / OBJECT_PART;
}

static uint64_t share_left_bytes(uint64_t most, uint64_t wrote)
{
    return most - (wrote < most ? wrote : most);
}

uint64_t share_left(struct share *s, uint64_t client, enum share_kind kind, uint64_t quota_bytes,
                    uint64_t now_s)
{
    uint64_t left = limit_of(s, kind, quota_bytes);
    const struct client *c;

    if (client == 0) {
        return UINT64_MAX;
    }
    lock_take(&s->lock);
    c = client_find(s, client);
    if (c != NULL) {
        left = share_left_bytes(left, window_sum(&c->wrote[kind], now_s));
    }
    if (kind == SHARE_RANGE) {
        uint64_t all =
            share_left_bytes(quota_bytes / RANGE_ALL_PART, window_sum(&s->ranges, now_s));
        left = left < all ? left : all;
    }
    lock_drop(&s->lock);
    return left;
}

void share_wrote(struct share *s, uint64_t client, enum share_kind kind, uint64_t bytes,
                 uint64_t now_s)
{
    if (client == 0) {
        return;
    }
    lock_take(&s->lock);
    window_add(&client_of(s, client)->wrote[kind], bytes, now_s);
    if (kind == SHARE_RANGE) {
        window_add(&s->ranges, bytes, now_s);
    }
    lock_drop(&s->lock);
}

int share_refuse(struct share *s, enum share_kind kind, const struct store_space *space,
                 struct err *e)
{
    const char *more = space->by_disk ? "free space on the store's disk" : "raise storage.quota";

    if (kind == SHARE_RANGE) {
        return err_set(
            e, E_NOSPACE,
            "no room for ranges of an object larger than the quota: in an hour, one client may "
            "evict %" PRIu64 " bytes for such ranges, all clients %" PRIu64
            ", and the rest of the store is in use; try again later, or %s",
            limit_of(s, kind, space->quota_bytes), space->quota_bytes / RANGE_ALL_PART, more);
    }
    return err_set(e, E_NOSPACE,
                   "no room for this fetch: after %" PRIu64
                   " bytes in an hour, your fetches may not evict what others used in the last "
                   "hour; try again later, or %s or raise storage.client_store",
                   limit_of(s, kind, space->quota_bytes), more);
}

/* --- who brought what ------------------------------------------------------------------------- */

static struct contributed *object_find(struct share *s, const struct digest *d)
{
    struct contributed *o;

    HASH_FIND(hh, s->objects, d, sizeof *d, o);
    return o;
}

void share_contributed(struct share *s, uint64_t client, const struct digest *d,
                       uint64_t size_bytes)
{
    struct contributed *o;

    if (client == 0) {
        return;
    }
    lock_take(&s->lock);
    if (object_find(s, d) == NULL) {
        if (HASH_COUNT(s->objects) >= SHARE_OBJECTS) {
            object_free(s, LIST_ITEM(s->objects_by_age.next, struct contributed, age));
        }
        o = NEW(struct contributed);
        o->digest = *d;
        o->size_bytes = size_bytes;
        o->client = client_of(s, client);
        o->client->own_bytes += size_bytes;
        list_push_back(&o->client->own, &o->node);
        list_push_back(&s->objects_by_age, &o->age);
        HASH_ADD(hh, s->objects, digest, sizeof o->digest, o);
    }
    lock_drop(&s->lock);
}

void share_gone(struct share *s, const struct digest *d)
{
    struct contributed *o;

    lock_take(&s->lock);
    o = object_find(s, d);
    if (o != NULL) {
        object_free(s, o);
    }
    lock_drop(&s->lock);
}

size_t share_own(struct share *s, uint64_t client, struct digest *out, size_t room)
{
    struct client *c;
    size_t n = 0;

    lock_take(&s->lock);
    c = client_find(s, client);
    if (c != NULL) {
        LIST_EACH (&c->own, it) {
            if (n == room) {
                break;
            }
            out[n++] = LIST_ITEM(it, struct contributed, node)->digest;
        }
    }
    lock_drop(&s->lock);
    return n;
}

uint64_t share_own_bytes(struct share *s, uint64_t client)
{
    const struct client *c;
    uint64_t bytes;

    lock_take(&s->lock);
    c = client_find(s, client);
    bytes = c != NULL ? c->own_bytes : 0;
    lock_drop(&s->lock);
    return bytes;
}
