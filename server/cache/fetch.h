/* fetch.h - one object on its way from the origin: a sparse stage, who fetches into it, who reads
 * from it.
 *
 * A fetch begins with one upstream request. Its head decides: a 200 or 206 makes the stage and the
 * fetch is announced (headed); anything else ends it (other). Range requests fetch segments; what
 * was written is published and the readers' loops are told, one message a loop. Bytes are hashed in
 * order behind the frontier; when all are there the blob is sealed and its rows are committed.
 * Entries (entry.c) start fetches and answer from them.
 *
 *   fetch.c    its life, its readers, and what becomes of it when nobody wants it any more
 *   range_request.c  segments: upstream requests, which answers may be joined, writes, retries
 *   seal.c    hashing, verification, sealing, the rows, which variants make room; what an index tells of other keys; what survives
 *             a restart
 *   claims.c  which bytes are fetched next
 *   share.c   whose bytes make room for whose
 *
 * owns     counted: the entry, every answer, every posted message and job hold it
 * threads  the fetch thread, where nothing else is said
 */
#ifndef SERVER_CACHE_FETCH_H
#define SERVER_CACHE_FETCH_H

#include "common/base/list.h"
#include "server/cache/cache.h"
#include "server/cache/object.h"
#include "server/fetch/request.h"

struct fetch; /* fetch_priv.h */

struct fetch_owner { /* all on the fetch thread */
    /* Bytes may be read: answer those who wait. */
    void (*headed)(void *arg, struct fetch *f);
    /* The first head was something else; ended() follows with E_CANCELLED. */
    void (*other)(void *arg, struct fetch *f, const struct origin_head *h);
    /* Once, last. rc 0: sealed and committed (or complete and not to be kept). The owner's count is
     * still its own. */
    void (*ended)(void *arg, struct fetch *f, int rc, const struct err *why);
};

struct fetch_begin {
    const struct lookup *lookup;
    struct slice row_key;
    const struct object *old; /* the generation that it revalidates, or NULL */
    bool replaces;            /* there is an older generation */
    bool found;               /* others find its entry: what it brings becomes a row, if it may */
};

/* --- its owner --- */
struct fetch *fetch_start(struct cache *c, const struct fetch_begin *how,
                          const struct fetch_owner *owner, void *arg);
struct fetch *fetch_hold(struct fetch *f); /* any thread, as the next */
void fetch_release(struct fetch **fp);
/* Another client waits for it: what it queues for is done in whichever's turn comes first. */
void fetch_share(struct fetch *f, uint64_t client);
/* Those who asked have all left, or want another variant: whether it goes on is decided once it
 * runs. */
void fetch_look_again(struct fetch *f);
/* Whoever asked is answered without it: what it brings is wanted by those who come later. */
void fetch_go_on_alone(struct fetch *f);
/* It is removed, or another takes its place: it leaves no row. */
void fetch_keep_no_more(struct fetch *f);
/* Nobody waits for its head any more: it ends, and that says nothing of the origin. Not once its
 * head has come. */
void fetch_forsake(struct fetch *f);

/* --- the cache --- */
struct fetch *fetch_of(struct list *node); /* a member of the cache's `fills` */
/* The cache closes: its readers are cut, and what can be resumed is parked. */
void fetch_stop(struct fetch *f);
/* Every second: abandoned ones, maps to be saved, rates. */
void fetch_tick(struct fetch *f, uint64_t now_ms);

/* --- answers --- */
/* An answer made of it is given out for that want; the last one given back: what becomes of it is
 * decided. */
void fetch_answered(struct fetch *f, const struct lookup *w);
void fetch_given_back(struct fetch *f); /* any thread */
/* Would a new reader wait for bytes that do not come? False: they are here, or are asked for once
 * more on its behalf. */
bool fetch_turns_away(struct fetch *f, const struct lookup *w, struct err *why);

/* --- what it is like --- */
/* For whom it is: only ever less. */
enum fetch_use {
    USE_ASKERS, /* those who had asked before its head came */
    USE_ALL,    /* whoever asks */
    USE_KEPT,   /* the same, and it becomes a row */
};

struct fetch_view {
    enum fetch_use use;
    bool failed;
    bool replaces;                    /* an older generation */
    bool ranges_alone;                /* it has more bytes than the quota */
    bool over_share;                  /* E_NOSPACE: its client has had its share */
    bool rests;                       /* nobody wants it, and it asks for nothing */
    struct slice row_key;             /* with the tail */
    struct slice vary_key;            /* of the variant that it is (variant.h) */
    uint64_t have_bytes, total_bytes; /* LENGTH_UNKNOWN until known */
    uint64_t readers, rate_bytes_per_s, age_ms;
};
struct fetch_view fetch_view(struct fetch *f); /* the fetch thread, or under the cache's lock */
/* During other(): what came behind the head; p == NULL: nothing that may be given. */
struct slice fetch_text(const struct fetch *f);
/* Constant, and once it is headed: */
const struct lookup *fetch_lookup(const struct fetch *f);
const struct object *fetch_object(const struct fetch *f); /* digest and size come with the seal */
bool fetch_is_headed(const struct fetch *f);
bool fetch_complete(struct fetch *f);
bool fetch_keeps(const struct fetch *f); /* USE_KEPT; any thread */
/* A 200 or 206 that cannot be what is wanted (lookup.h: no_html), by its head. */
bool fetch_is_refused(const struct fetch *f, const struct origin_head *h);

/* A body that follows it, for loop l. `held` is the answer that holds the fetch, and is held by the
 * body. Any thread. */
struct body *fetch_body(struct fetch *f, struct answer *held, struct loop *l, uint64_t first,
                        uint64_t end);

#endif
