/* fetch.h - the download of one object from its origin, and its readers.
 *
 * Entries (entry.c) start fetches and answer lookups from them. A fetch begins with one upstream
 * request, whose response head decides: a 200 or 206 opens a sparse stage and the fetch is
 * announced (headed); anything else ends it (other). Range requests download segments. Written
 * bytes are published, and each loop with readers gets one message. Bytes are hashed in order up to
 * the first gap; when all are present the blob is sealed and its rows are committed.
 *
 *   fetch.c          its life, its readers, and what becomes of it without a client
 *   range_request.c  segments: upstream requests, which answers may be joined, writes, retries
 *   seal.c           hashing, verification, sealing, the rows, which variants make room; what an
 *                    index says of other keys; what survives a restart
 *   claims.c         which bytes are fetched next
 *   share.c          whose bytes make room for whose
 *
 * owns     counted: the entry, every answer, every posted message and every job hold it
 * threads  the fetch thread, where nothing else is said
 * errors   owner->ended() gets the code and the reason
 */
#ifndef SERVER_CACHE_FETCH_H
#define SERVER_CACHE_FETCH_H

#include "common/base/list.h"
#include "server/cache/cache.h"
#include "server/cache/object.h"
#include "server/fetch/request.h"

struct fetch; /* fetch_priv.h */

struct fetch_owner { /* all run on the fetch thread */
    /* Bytes can be read: answer the lookups that wait. */
    void (*headed)(void *arg, struct fetch *f);
    /* The first head was neither a 200 nor a 206. ended() follows with E_CANCELLED. */
    void (*other)(void *arg, struct fetch *f, const struct origin_head *h);
    /* Runs once, last. rc 0: the object is sealed and committed, or complete and not to be kept.
     * The owner still holds its count. */
    void (*ended)(void *arg, struct fetch *f, int rc, const struct err *why);
};

struct fetch_begin {
    const struct lookup *lookup;
    struct slice row_key;
    const struct object *old; /* the generation that it revalidates, or NULL */
    bool replaces;            /* an older generation exists */
    bool asks_origin;         /* and no other mirror before it */
    /* other lookups can find its entry; its object becomes a row, if allowed */
    bool found;
};

/* --- its owner --- */
struct fetch *fetch_start(struct cache *c, const struct fetch_begin *how,
                          const struct fetch_owner *owner, void *arg);
struct fetch *fetch_hold(struct fetch *f); /* any thread, as the next */
void fetch_release(struct fetch **fp);
/* Another client waits for it. Queued work is done at the turn of whichever client comes first. */
void fetch_share(struct fetch *f, uint64_t client);
/* All lookups have left or need another variant. Whether the fetch continues is decided once it is
 * running. */
void fetch_look_again(struct fetch *f);
/* The lookup was answered without this fetch. Its object is for later lookups. */
void fetch_go_on_alone(struct fetch *f);
/* The object was removed, or another fetch replaces this one: it leaves no row. */
void fetch_keep_no_more(struct fetch *f);
/* No lookup waits for its head any more: the fetch ends, which says nothing about the origin. It
 * has no effect once the head has arrived. */
void fetch_forsake(struct fetch *f);

/* --- the cache --- */
struct fetch *fetch_of(struct list *node); /* from a link in the cache's `fetches` */
/* The cache closes: readers are cut off, and what can be resumed is parked. */
void fetch_stop(struct fetch *f);
/* Runs every second: ends abandoned fetches, saves progress maps, measures rates. */
void fetch_tick(struct fetch *f, uint64_t now_ms);

/* --- answers --- */
/* An answer from this fetch is given out for that lookup. When the last one is given back, the
 * fetch decides what becomes of it. */
void fetch_answered(struct fetch *f, const struct lookup *w);
void fetch_given_back(struct fetch *f); /* any thread */
/* True: a new reader would wait for bytes that do not arrive. False: they are present, or are
 * requested once more for this reader. */
bool fetch_turns_away(struct fetch *f, const struct lookup *w, struct err *why);

/* --- properties --- */
/* For whom its object is. The value is only ever lowered. */
enum fetch_use {
    USE_ASKERS, /* those who asked before its head arrived */
    USE_ALL,    /* everybody who asks */
    USE_KEPT,   /* the same, and it becomes a row */
};

struct fetch_view {
    enum fetch_use use;
    bool failed;
    bool replaces;                    /* an older generation */
    bool ranges_alone;                /* it is larger than the quota */
    bool over_share;                  /* E_NOSPACE: its client has used its share */
    bool rests;                       /* no client uses it, and it requests nothing */
    struct slice row_key;             /* with the vary key */
    struct slice vary_key;            /* of this variant (variant.h) */
    uint64_t have_bytes, total_bytes; /* LENGTH_UNKNOWN until known */
    uint64_t readers, rate_bytes_per_s, age_ms;
};
struct fetch_view fetch_view(struct fetch *f); /* the fetch thread, or under the cache's lock */
/* During other(): the body after the head. p == NULL: there is none that may be given out. */
struct slice fetch_text(const struct fetch *f);
/* These do not change once the fetch is headed: */
const struct lookup *fetch_lookup(const struct fetch *f);
const struct object *fetch_object(const struct fetch *f); /* digest and size are set by the seal */
bool fetch_is_headed(const struct fetch *f);
bool fetch_complete(struct fetch *f);
bool fetch_keeps(const struct fetch *f); /* USE_KEPT; any thread */
/* Another mirror was to be asked for it. */
bool fetch_has_neighbors(const struct fetch *f);
/* Waits for no parent (neighbor.h): another mirror may wait for it. */
bool fetch_is_first_hand(const struct fetch *f);
/* Goes on at the origin if its parent is the last one and nothing of what has come is lost. Not if
 * the parent gives what it has because the origin is in trouble. */
void fetch_leave_parent(struct fetch *f);
/* A neighbor gives what it has, because the origin is in trouble. */
bool fetch_is_stale(const struct fetch *f);
/* When the origin gave or confirmed what the head says, by the clock here. */
uint64_t fetch_confirmed_unix_s(const struct fetch *f);
/* True: by its head, a 200 or 206 cannot be the requested object (lookup.h: no_html). */
bool fetch_is_refused(const struct fetch *f, const struct origin_head *h);

/* A body that follows the fetch, for loop l. The body holds `held`, the answer that holds the
 * fetch. Any thread. */
struct body *fetch_body(struct fetch *f, struct answer *held, struct loop *l, uint64_t first,
                        uint64_t end);

#endif
