/* entry.h - an entry from within, for entry.c and verdict.c.
 *
 * threads  the fetch thread
 */
#ifndef SERVER_CACHE_ENTRY_H
#define SERVER_CACHE_ENTRY_H

#include "server/cache/cache_priv.h"

enum { TROUBLE_MS = 2000 }; /* an origin in trouble is left alone for so long, a key */

struct promise {
    bool known;
    struct digest digest;
};

struct entry {
    UT_hash_handle hh;
    struct cache *cache;
    struct arena arena;
    struct slice row_key;
    struct slice repo;
    uint64_t origin; /* its identity */
    bool in_table;
    struct list asks;
    bool looking;
    bool ask_plainly; /* a 304 did not fit: the next request is unconditional */
    struct job look;
    struct want *look_want; /* of the first ask */
    struct promise promise; /* this round's */
    struct hit *old;        /* what the row says; stale */
    struct fill *fill;      /* held */
    bool first_told;        /* the one who caused the fill has been answered */
    bool answered;          /* other() has dealt with the asks */
    struct answer *memory;  /* a 404, or a HEAD's answer */
    bool memory_is_head;
    struct promise memory_promise;
    uint64_t memory_until_ms;
    uint64_t trouble_until_ms;
    struct err trouble;
    struct promise trouble_promise;
    struct list rest; /* in cache->resting */
};

bool was_promised(const struct cache_ask *k, const struct promise *p);
struct cache_ask *entry_first(struct entry *n);       /* of this round; or NULL */
void entry_answer(struct entry *n, struct answer *a); /* all of this round. Takes a */
void entry_answer_trouble(struct entry *n, int rc, const struct err *why);
void entry_remember_trouble(struct entry *n, int rc, const struct err *why);

/* verdict.c: the first head of n's fill was neither 200 nor 206, or of a HEAD. What it settles is answered; `answered`
 * then. */
void verdict_take(struct entry *n, struct fill *f, const struct fetch_head *h);

#endif
