/* cache_priv.h - the cache's inside, for its own files. */
#ifndef SERVER_CACHE_CACHE_PRIV_H
#define SERVER_CACHE_CACHE_PRIV_H

#include <event2/event.h>
#include <stdatomic.h>
#include <uthash.h>

#include "server/cache/fetch.h"
#include "server/cache/freshness.h"
#include "server/cache/share.h"
#include "server/store/keep.h"

enum {
    GET_FOR_HEAD_BYTES =
        1 << 20, /* of a larger one that may have changed, a HEAD asks the origin for a HEAD */
};

/* Whoever is busy and does not say for how long is left alone so long: an origin by us, we by
 * clients. */
enum { BUSY_S = 5 };

struct cache {
    struct store *store;
    struct pool *disk;
    struct cache_settings set;
    struct event_base *base;
    struct message_queue *mail; /* of the fetch thread */
    struct origin_client *origin_client;
    struct event *tick;
    pthread_t thread;

    struct lock lock; /* guards the links of `fills` against cache_fetches() */
    struct list fetches;
    struct vary_group *groups; /* uthash; the fetch thread's, as all below */
    /* entries that all who asked have left, until the event has seen to them */
    struct list forsaken;
    struct event *forsake;
    struct list resting; /* entries with nothing but a memory, oldest first */
    size_t resting_count;
    size_t resting_bytes; /* of the words that they remember */
    unsigned busy;        /* jobs and commits of entries */
    unsigned idle;     /* fetches that nobody wants, and that wait for somebody: at the last tick */
    unsigned idle_now; /* the same, as far as this tick has come */
    struct going *going;  /* uthash, by client (fetch.c) */
    unsigned going_count; /* fills on their accounts */
    bool closing;
    struct message close_message;

    _Atomic uint64_t announced_bytes; /* of all fetches */
    _Atomic unsigned asks;            /* out */
    void (*on_change)(void *arg, struct slice repo, struct slice key);
    void *on_change_arg;
    struct keeper *keeper;
    struct lock keep_lock;         /* one eviction at a time, and what was seen then: */
    uint64_t unused_none_until_ms; /* nothing is unused for an hour */
    struct share *share;

    struct {
        _Atomic uint64_t hits, misses, collapsed, revalidated, stale, negative, failed, fetches,
            fetch_total_bytes, verify_failures, evicted_bytes, evicted_blobs, waiting, crowded,
            share_looks; /* at all fetches, for a client's share */
    } count;
};

#define COUNT(c, what, n) atomic_fetch_add_explicit(&(c)->count.what, (n), memory_order_relaxed)

/* --- answer.c --- */
struct answer *answer_of_blob(struct cache *c, const struct object *o, struct blob *b,
                              const struct lookup *w, enum cache_state state); /* holds b */
struct answer *answer_of_fetch(struct fetch *f, const struct lookup *w,
                               enum cache_state state); /* holds f */
struct answer *answer_of_status(struct cache *c, int status, enum cache_state state,
                                uint32_t retry_after_s, const struct err *why);
/* The origin's no, or what is no object: with its words, where f has them and the status is the
 * origin's own. */
struct answer *answer_of_error(struct cache *c, struct fetch *f, int status, enum cache_state state,
                               const struct origin_head *h);
/* Of an upstream HEAD: no bytes behind it. */
struct answer *answer_of_head(struct cache *c, const struct origin_head *h, const struct lookup *w);

/* --- ask.c --- */
/* w's strings in arena a; the origin is held by the caller's own count. */
void lookup_copy(struct arena *a, const struct lookup *w, struct lookup *out);
struct cache_ask {
    struct cache *cache;
    _Atomic unsigned refs; /* the answer's way back, and each message that says something of it */
    struct loop *loop;     /* NULL: nobody waits, it revalidates what was given stale */
    struct arena arena;
    struct lookup lookup;
    struct origin *origin;
    struct slice row_key;
    void (*on_answer)(void *arg, struct answer *a);
    void *arg;
    _Atomic bool cancelled;
    struct answer *answer;
    struct cache_entry
        *entry;       /* where it waits; NULL: nowhere. The fetch thread's, as the next three */
    struct list node; /* in the entry */
    struct crowd_ask place;
    struct fair_clients clients; /* who wait for it: the want's, and whom cache_share() named */
    uint64_t until_ms;           /* the end of its patience; 0: it has no end */
    bool until_silent;           /* at that end it waits on, unless the origin is silent */
    struct job job;
    struct message message;
    struct message leaving; /* cache_cancel() */
};
void ask_release(struct cache_ask *k);                  /* any thread */
void ask_answer(struct cache_ask *k, struct answer *a); /* takes a; any thread */

/* --- hit.c --- */
/* A row, decoded, and its blob. Blocks. E_NOTFOUND also when the blob is gone or is not the one
 * wanted. */
struct hit {
    struct arena arena;
    struct object object;
    struct blob *blob;
    struct slice vary_key; /* of the variant that it is (variant.h) */
};
/* like: the tail of the variant that came last, whether it suits or not; empty: there are none.
 * NULL: not asked for. */
MUST_USE int hit_find(struct cache *c, struct slice row_key, const struct lookup *w,
                      struct hit **out, struct buf *like, struct err *e);
void hit_free(struct hit **hp);
/* The rows behind that key. */
MUST_USE int variants_each(struct cache *c, struct slice row_key,
                           int (*each)(void *arg, struct slice vary_key, struct slice row),
                           void *arg, struct err *e);

/* --- entry.c --- */
void entry_ask(struct cache *c, struct cache_ask *k); /* fetch thread, as the next two */
void entry_leave(struct cache_ask *k); /* it has been cancelled: it waits nowhere any more */
void entry_share(struct cache_entry *n, uint64_t client); /* this client waits there, too */
void entries_end_forsaken(struct cache *c);
void entries_drop_all(struct cache *c); /* at close: everybody is told */
/* Entries of these row keys (object_key_is) are cut loose from the table: a later want begins anew,
 * and what is under way for them hands in no row any more. */
void entries_forget(struct cache *c, struct slice key, bool below);
/* The same for those whose bytes may change. */
void entries_expire(struct cache *c, struct slice key, bool below);
void entries_rest_tick(struct cache *c, uint64_t now_ms);

/* --- cache.c --- */
void cache_changed(struct cache *c, struct slice row_key); /* fetch thread: tells on_change */
void cache_changed_post(struct cache *c, struct slice repo, struct slice key); /* any thread */

/* --- keeper.c --- */
struct keeper *keeper_open(struct cache *c);
void keeper_close(struct keeper **kp);
/* For a client that has had its share: makes room for n bytes of a fetch by what the client
 * brought, and by what nobody uses. Pool. */
MUST_USE int cache_make_room_beyond(struct cache *c, uint64_t client, uint64_t n, struct err *e);
/* Could it, for n bytes once `within` more have come? own_bytes: what the client may put out beside
 * what it brought. Removes nothing. Pool. */
MUST_USE int cache_room_beyond(struct cache *c, uint64_t client, uint64_t within,
                               uint64_t own_bytes, uint64_t n, struct err *e);
/* Are n bytes more than what is free, and what the client may put out of its own? */
bool cache_is_tight(struct cache *c, uint64_t client, uint64_t n);

#endif
