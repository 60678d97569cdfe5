/* cache_priv.h - the inside of the cache, for the files of this folder.
 *
 * It declares struct cache, a lookup that waits (struct cache_ask), and the calls between answer.c,
 * ask.c, hit.c, entry.c, cache.c and keeper.c.
 *
 * owns     the cache owns its entries and fetches; an ask is counted (ask_release())
 * threads  as each part says; the groups and entries belong to the fetch thread
 */
#ifndef SERVER_CACHE_CACHE_PRIV_H
#define SERVER_CACHE_CACHE_PRIV_H

#include <event2/event.h>
#include <stdatomic.h>
#include <uthash.h>

#include "server/cache/fetch.h"
#include "server/cache/forgotten.h"
#include "server/cache/freshness.h"
#include "server/cache/share.h"
#include "server/store/keep.h"

enum {
    GET_FOR_HEAD_BYTES =
        1 << 20, /* for a larger object that may have changed, a HEAD is sent as a HEAD */
};

/* The pause after an overload that names no time: for us before we ask the origin again, and for
 * our clients. */
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

    struct lock lock; /* guards the links of `fetches` against cache_fetches() */
    struct list fetches;
    struct vary_group *groups; /* uthash; only for the fetch thread, as all below */
    /* Entries that all clients have left, until the event handles them. */
    struct list forsaken;
    struct event *forsake;
    struct list resting; /* entries that only remember an answer, oldest first */
    size_t resting_count;
    size_t resting_bytes; /* of the texts that they remember */
    unsigned busy;        /* jobs and commits of entries */
    unsigned idle;       /* fetches that no client uses and that are kept ready: at the last tick */
    unsigned idle_now;   /* the same count, during the current tick */
    struct going *going; /* uthash, by client (fetch.c) */
    unsigned going_count; /* fetches on their accounts */
    bool closing;
    struct message close_message;

    _Atomic uint64_t announced_bytes;     /* the sum over all fetches */
    _Atomic uint64_t arriving_bytes;      /* that are being written: no account has them yet */
    _Atomic unsigned asks;                /* lookups without an answer */
    const struct neighbor_ops *neighbors; /* NULL: there are none */
    void *neighbors_arg;
    struct forgotten_keys forgotten; /* only where there are neighbors */
    void (*on_change)(void *arg, struct slice repo, struct slice key);
    void *on_change_arg;
    struct keeper *keeper;
    struct lock keep_lock;         /* one eviction at a time; it also guards the next field */
    uint64_t unused_none_until_ms; /* until then nothing has been unused for an hour */
    struct share *share;

    struct {
        _Atomic uint64_t hits, misses, collapsed, revalidated, stale, negative, failed, fetches,
            fetch_total_bytes, verify_failures, evicted_bytes, evicted_blobs, waiting, crowded,
            share_looks; /* passes over all fetches to work out a client's share */
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
/* An error of the origin, or an answer that is not an object. It has the origin's text where f has
 * it and the status is the origin's own. */
struct answer *answer_of_error(struct cache *c, struct fetch *f, int status, enum cache_state state,
                               const struct origin_head *h);
/* The answer to an upstream HEAD: it has no body. */
struct answer *answer_of_head(struct cache *c, const struct origin_head *h, const struct lookup *w);

/* --- ask.c --- */
struct cache_ask {
    struct cache *cache;
    _Atomic unsigned refs; /* for the answer's way back, and for each message about it */
    /* NULL: no client waits; it revalidates an answer that was served stale */
    struct loop *loop;
    struct arena arena;
    struct lookup lookup;
    struct origin *origin;
    struct slice row_key;
    void (*on_answer)(void *arg, struct answer *a);
    void *arg;
    _Atomic bool cancelled;
    struct answer *answer;
    /* where it waits, or NULL; this and the next three belong to the fetch thread */
    struct cache_entry *entry;
    struct list node; /* in the entry */
    struct crowd_ask place;
    /* who waits: the lookup's client, and those named by cache_share() */
    struct fair_clients clients;
    uint64_t until_ms; /* when its patience ends; 0: never */
    bool until_silent; /* when it ends, wait on unless the origin is silent */
    struct job job;
    struct message message;
    struct message leaving; /* for cache_cancel() */
};
void ask_release(struct cache_ask *k);                  /* any thread */
void ask_answer(struct cache_ask *k, struct answer *a); /* takes a; any thread */

/* --- hit.c --- */
/* A decoded row and its blob. Blocks. E_NOTFOUND also when the blob is gone or is not the requested
 * one. */
struct hit {
    struct arena arena;
    struct object object;
    struct blob *blob;
    struct slice vary_key; /* of this variant (variant.h) */
};
/* like: the vary key of the newest variant, whether it matches or not; empty: there are none. NULL:
 * the caller does not need it. */
MUST_USE int hit_find(struct cache *c, struct slice row_key, const struct lookup *w,
                      struct hit **out, struct buf *like, struct err *e);
void hit_free(struct hit **hp);
/* Calls each() for the rows of all variants of that key. */
MUST_USE int variants_each(struct cache *c, struct slice row_key,
                           int (*each)(void *arg, struct slice vary_key, struct slice row),
                           void *arg, struct err *e);

/* --- entry.c --- */
void entry_ask(struct cache *c, struct cache_ask *k); /* fetch thread, as the next two */
void entry_leave(struct cache_ask *k); /* after a cancel: it no longer waits anywhere */
void entry_share(struct cache_entry *n, uint64_t client); /* this client waits there, too */
void entries_end_forsaken(struct cache *c);
void entries_drop_all(struct cache *c); /* at close: every ask gets an answer */
/* Removes the entries of these row keys (object_key_is()) from the table. A later lookup starts
 * afresh, and work under way for them commits no row. */
void entries_forget(struct cache *c, struct slice key, bool below);
/* The same, for objects whose bytes may change. */
void entries_expire(struct cache *c, struct slice key, bool below);
void entries_rest_tick(struct cache *c, uint64_t now_ms);

/* --- cache.c --- */
void cache_changed(struct cache *c, struct slice row_key); /* fetch thread: calls on_change */
void cache_changed_post(struct cache *c, struct slice repo, struct slice key); /* any thread */

/* --- keeper.c --- */
struct keeper *keeper_open(struct cache *c);
void keeper_close(struct keeper **kp);
/* For a client that has used its share: makes room for n bytes of a fetch by evicting the client's
 * own objects and unused ones. Pool thread. */
MUST_USE int cache_make_room_beyond(struct cache *c, uint64_t client, uint64_t n, struct err *e);
/* Could cache_make_room_beyond() make room for n bytes after `within` more have arrived? own_bytes:
 * what the client may evict beside the objects that it brought. Removes nothing. Pool thread. */
MUST_USE int cache_room_beyond(struct cache *c, uint64_t client, uint64_t within,
                               uint64_t own_bytes, uint64_t n, struct err *e);
/* Are n bytes more than the free space and the client's own objects together? */
bool cache_is_tight(struct cache *c, uint64_t client, uint64_t n);

#endif
