/* entry.h - an entry from within, for entry.c and verdict.c.
 *
 * threads  the fetch thread
 */
#ifndef SERVER_CACHE_ENTRY_H
#define SERVER_CACHE_ENTRY_H

#include "server/cache/cache_priv.h"
#include "server/cache/variant.h"

enum {
    TROUBLE_MS = 2000, /* an origin in trouble is left alone for so long, a key */
    /* An error (5xx) this soon after another one is an outage. A single one is not: the next
     * request asks the origin again. */
    OUTAGE_MS = 10000,
};

struct expected_digest {
    bool known;
    struct digest digest;
};

struct cache_entry {
    struct list node;         /* in its group's */
    struct vary_group *group; /* all entries of its key; NULL: it is not found any more */
    struct cache *cache;
    struct arena arena;
    struct slice row_key; /* without a tail */
    struct slice repo;
    uint64_t origin;     /* its identity */
    bool vary_key_known; /* else all who ask wait for what the origin says */
    struct buf vary_key; /* whom it is for (variant.h): as the origin said, or did before */
    struct list asks;
    struct origin *crowd; /* held while somebody waits: there it counts */
    struct crowd_place place;
    struct list forsaken;        /* in the cache's */
    struct fair_clients clients; /* of the asks: in their turns it looks and fetches */
    bool looking;
    unsigned settling; /* commits of its rows that the next look must see */
    enum {
        PROBES_NOTHING,
        PROBES_LENGTH, /* a HEAD asks for it, for those who want a range from the end: once a round */
        PROBES_ORIGIN, /* a HEAD asks whether the origin is back */
    } probe;
    bool ask_plainly; /* a 304 did not fit: the next request is unconditional */
    struct job look;
    struct buf look_like;       /* the tail of a variant that was there, though not for these */
    struct arena look_arena;    /* what the look borrows: the ask may go meanwhile */
    struct origin *look_origin; /* held */
    struct lookup look_lookup;  /* of the first ask */
    struct expected_digest expected_digest; /* this round's */
    struct hit *old;                        /* what the row says; stale */
    struct fetch *fetch;                    /* held */
    bool first_reported;                    /* the one who caused the fetch has been answered */
    bool answered;                          /* other() has dealt with the asks */
    struct answer *memory;                  /* a 404, or a HEAD's answer */
    bool memory_is_head;
    struct expected_digest memory_expected_digest;
    uint64_t memory_until_ms;
    uint64_t trouble_until_ms;
    struct err trouble;
    struct expected_digest trouble_expected_digest;
    /* the origin has answered with an error: until then another one makes it an outage */
    uint64_t failed_until_ms;
    struct list rest;       /* in cache->resting */
    struct event *patience; /* somebody's ends; NULL: nobody's ever did */
};

bool was_expected(const struct cache_ask *k, const struct expected_digest *p);
void entry_settled(struct cache_entry *n);                     /* one of those commits is done */
void entry_unlist(struct cache_entry *n, struct cache_ask *k); /* it waits no longer */
void entry_answer(struct cache_entry *n, struct answer *a);    /* all of this round. Takes a */
void entry_answer_trouble(struct cache_entry *n, int rc, const struct err *why);
/* One of them alone, which waits no longer. */
void entry_remember_trouble(struct cache_entry *n, int rc, const struct err *why);
/* The origin has told whom its answer is for: the others ask again. */
void entry_is_for(struct cache_entry *n, struct slice vary_key);

/* verdict.c: the first head of n's fetch was neither 200 nor 206, or of a HEAD. What it settles is
 * answered; `answered` then. */
void verdict_take(struct cache_entry *n, struct fetch *f, const struct origin_head *h);

#endif
