/* fill.h - one object on its way from the origin: a sparse stage, who fetches into it, who reads from it.
 *
 * A fill begins with one upstream request. Its head decides: a 200 or 206 makes the stage and the fill is announced
 * (headed); anything else ends it (other). Fillers fetch segments; what was written is published and the readers' loops are
 * told, one letter a loop. Bytes are hashed in order behind the frontier; when all are there the blob is sealed and its
 * rows are committed. Entries (entry.c) start fills and answer from them.
 *
 *   fill.c    its life, its readers, and what becomes of it when nobody wants it any more
 *   filler.c  segments: upstream requests, which answers may be joined, writes, retries
 *   seal.c    hashing, verification, sealing, the rows, which variants make room; what an index tells of other keys; what survives
 *             a restart
 *   claims.c  which bytes are fetched next
 *   share.c   whose bytes make room for whose
 *
 * owns     counted: the entry, every answer, every posted letter and job hold it
 * threads  the fetch thread, where nothing else is said
 */
#ifndef SERVER_CACHE_FILL_H
#define SERVER_CACHE_FILL_H

#include "common/base/list.h"
#include "server/cache/cache.h"
#include "server/cache/object.h"
#include "server/fetch/fetch.h"

struct fill; /* fill_priv.h */

struct fill_owner { /* all on the fetch thread */
    /* Bytes may be read: answer those who wait. */
    void (*headed)(void *arg, struct fill *f);
    /* The first head was something else; ended() follows with E_CANCELLED. */
    void (*other)(void *arg, struct fill *f, const struct fetch_head *h);
    /* Once, last. rc 0: sealed and committed (or complete and not to be kept). The owner's count is still its own. */
    void (*ended)(void *arg, struct fill *f, int rc, const struct err *why);
};

struct fill_begin {
    const struct want *want;
    struct slice row_key;
    const struct object *old; /* the generation that it revalidates, or NULL */
    bool replaces;            /* there is an older generation */
    bool found;               /* others find its entry: what it brings becomes a row, if it may */
};

/* --- its owner --- */
struct fill *fill_start(struct cache *c, const struct fill_begin *how,
                        const struct fill_owner *owner, void *arg);
struct fill *fill_hold(struct fill *f); /* any thread, as the next */
void fill_release(struct fill **fp);
/* Another client waits for it: what it queues for is done in whichever's turn comes first. */
void fill_share(struct fill *f, uint64_t client);
/* Those who asked have all left, or want another variant: whether it goes on is decided once it runs. */
void fill_look_again(struct fill *f);
/* Whoever asked is answered without it: what it brings is wanted by those who come later. */
void fill_go_on_alone(struct fill *f);
/* It is removed, or another takes its place: it leaves no row. */
void fill_keep_no_more(struct fill *f);
/* Nobody waits for its head any more: it ends, and that says nothing of the origin. Not once its head has come. */
void fill_forsake(struct fill *f);

/* --- the cache --- */
struct fill *fill_of(struct list *node); /* a member of the cache's `fills` */
/* The cache closes: its readers are cut, and what can be resumed is parked. */
void fill_stop(struct fill *f);
/* Every second: abandoned ones, maps to be saved, rates. */
void fill_tick(struct fill *f, uint64_t now_ms);

/* --- answers --- */
/* An answer made of it is given out for that want; the last one given back: what becomes of it is decided. */
void fill_answered(struct fill *f, const struct want *w);
void fill_given_back(struct fill *f); /* any thread */
/* Would a new reader wait for bytes that do not come? False: they are here, or are asked for once more on its behalf. */
bool fill_turns_away(struct fill *f, const struct want *w, struct err *why);

/* --- what it is like --- */
/* For whom it is: only ever less. */
enum fill_use {
    USE_ASKERS, /* those who had asked before its head came */
    USE_ALL,    /* whoever asks */
    USE_KEPT,   /* the same, and it becomes a row */
};

struct fill_view {
    enum fill_use use;
    bool failed;
    bool replaces;                    /* an older generation */
    bool ranges_alone;                /* it has more bytes than the quota */
    bool over_share;                  /* E_NOSPACE: its client has had its share */
    bool rests;                       /* nobody wants it, and it asks for nothing */
    struct slice row_key;             /* with the tail */
    struct slice tail;                /* of the variant that it is (variant.h) */
    uint64_t have_bytes, total_bytes; /* LENGTH_UNKNOWN until known */
    uint64_t readers, rate_bytes_per_s, age_ms;
};
struct fill_view fill_view(struct fill *f); /* the fetch thread, or under the cache's lock */
/* During other(): what came behind the head; p == NULL: nothing that may be given. */
struct slice fill_text(const struct fill *f);
/* Constant, and once it is headed: */
const struct want *fill_want(const struct fill *f);
const struct object *fill_object(const struct fill *f); /* digest and size come with the seal */
bool fill_is_headed(const struct fill *f);
bool fill_complete(struct fill *f);
bool fill_keeps(const struct fill *f); /* USE_KEPT; any thread */
/* A 200 or 206 that cannot be what is wanted (want.h: no_html), by its head. */
bool fill_is_refused(const struct fill *f, const struct fetch_head *h);

/* A body that follows it, for loop l. `held` is the answer that holds the fill, and is held by the body. Any thread. */
struct body *fill_body(struct fill *f, struct answer *held, struct loop *l, uint64_t first,
                       uint64_t end);

#endif
