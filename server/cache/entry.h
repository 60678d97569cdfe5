/* entry.h - the inside of a cache entry, for entry.c and verdict.c.
 *
 * An entry collects the lookups for one key and one vary key, looks for a stored object,
 * starts a fetch and answers them. It also remembers absences and trouble of the origin.
 *
 * owns     an entry holds its origin, its fetch and the answer that it remembers
 * threads  the fetch thread
 */
#ifndef SERVER_CACHE_ENTRY_H
#define SERVER_CACHE_ENTRY_H

#include "server/cache/cache_priv.h"
#include "server/cache/variant.h"

enum {
    TROUBLE_MS = 2000, /* an origin in trouble is not asked for this key for so long */
    /* An error (5xx) this soon after another one is an outage. A single one is not: the next
     * request asks the origin again. */
    OUTAGE_MS = 10000,
};

struct expected_digest {
    bool known;
    struct digest digest;
};

struct cache_entry {
    struct list node;         /* in its group */
    struct vary_group *group; /* all entries of its key; NULL: it can no longer be found */
    struct cache *cache;
    struct arena arena;
    struct slice row_key; /* without a vary key */
    struct slice repo;
    uint64_t origin;     /* its identity */
    bool vary_key_known; /* false: all asks wait for the origin's response */
    struct buf vary_key; /* for whom it is (variant.h): as the origin said, now or earlier */
    struct list asks;
    struct origin *crowd; /* held while an ask waits; the ask counts there */
    struct crowd_place place;
    struct list forsaken;        /* in the cache's list */
    struct fair_clients clients; /* of the asks: looks and fetches take these clients' turns */
    bool looking;
    unsigned settling; /* commits of its rows that the next look must see */
    enum {
        PROBES_NOTHING,
        PROBES_LENGTH, /* a HEAD asks for it, for ranges from the end: once a round */
        PROBES_ORIGIN, /* a HEAD asks whether the origin is back */
    } probe;
    bool ask_plainly; /* a 304 did not fit: the next request is unconditional */
    struct job look;
    struct buf look_like;       /* the vary key of a variant that exists but does not match */
    struct arena look_arena;    /* what the look borrows: the ask may end in the meantime */
    struct origin *look_origin; /* held */
    struct lookup look_lookup;  /* of the first ask */
    struct expected_digest expected_digest; /* of this round */
    struct hit *old;                        /* the stored object, which is stale */
    struct fetch *fetch;                    /* held */
    bool first_reported;                    /* the ask that caused the fetch has been answered */
    bool answered;                          /* other() has handled the asks */
    struct answer *memory;                  /* a 404, or a HEAD's answer */
    bool memory_is_head;
    struct expected_digest memory_expected_digest;
    uint64_t memory_until_ms;
    uint64_t trouble_until_ms;
    struct err trouble;
    struct expected_digest trouble_expected_digest;
    /* The origin answered with an error: another one before this time makes it an outage. */
    uint64_t failed_until_ms;
    struct list rest;       /* in cache->resting */
    struct event *patience; /* fires when an ask's patience ends; NULL: none ever had an end */
};

bool was_expected(const struct cache_ask *k, const struct expected_digest *p);
void entry_settled(struct cache_entry *n);                     /* one of those commits is done */
void entry_unlist(struct cache_entry *n, struct cache_ask *k); /* the ask no longer waits */
/* answers all asks of this round; takes a */
void entry_answer(struct cache_entry *n, struct answer *a);
void entry_answer_trouble(struct cache_entry *n, int rc, const struct err *why);
/* Answers one of them alone, which then no longer waits. */
void entry_remember_trouble(struct cache_entry *n, int rc, const struct err *why);
/* The origin has said for whom its answer is: the other asks look again. */
void entry_is_for(struct cache_entry *n, struct slice vary_key);

/* verdict.c: the first head of n's fetch was neither a 200 nor a 206, or it answered a HEAD. Asks
 * that it settles are answered; then `answered` is set. */
void verdict_take(struct cache_entry *n, struct fetch *f, const struct origin_head *h);

#endif
