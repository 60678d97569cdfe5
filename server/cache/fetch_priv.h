/* fetch_priv.h - the inside of a fetch, for fetch.c, range_request.c and seal.c.
 *
 * It declares struct fetch, its states and those of a range request, and the calls between the
 * three files.
 *
 * owns     a fetch owns its range requests, its ingest and its audiences
 * threads  the fetch thread, except for what `lock` guards and what is constant once headed
 */
#ifndef SERVER_CACHE_FETCH_PRIV_H
#define SERVER_CACHE_FETCH_PRIV_H

#include <stdatomic.h>

#include "common/base/state.h"
#include "common/os/lock.h"
#include "common/os/pool.h"
#include "server/cache/cache_priv.h"
#include "server/cache/claims.h"
#include "server/store/ingest.h"

/* An object up to this size is fetched as a whole, although only a range was requested. */
#define PEEK_WHOLE_BYTES ((uint64_t)1 << 20)

enum {
    FETCH_MAGIC = 0x66696c6c,
    READER_MAGIC = 0x72656164,
    /* A write, and so the wake-up of all readers, waits for so many bytes or 8 ms. */
    GATHER_BYTES = 256 << 10,
    GATHER_MAX = 1 << 20, /* at this size the origin is paused */
    GATHER_MS = 8,
};

/* The state of a fetch.
 *
 *   ASKING --the head of a 200 or 206--> STAGING --the stage is open--> RUNNING
 *   RUNNING --every byte is here--> SEALING --> ENDED
 *
 * Each of them goes to ENDED once the fetch has failed (`rc`) and no work is under way for it.
 */
enum fetch_state {
    FETCH_ASKING,  /* no response head yet */
    FETCH_STAGING, /* headed; the stage is being opened */
    FETCH_RUNNING, /* bytes are written and given to readers */
    FETCH_SEALING, /* the last bytes are hashed, the blob is sealed, its rows are committed */
    FETCH_ENDED,   /* its owner has been notified */
    FETCH_STATES
};

/* How much of it is fetched.
 *
 *   RANGES --a client requests all of it, or the origin sends all--> WHOLE
 *   RANGES, WHOLE --no client uses it any more--> ALONE, where that is worth it, or NOTHING
 *   NOTHING --a client comes--> RANGES      ALONE --a client comes--> WHOLE
 */
enum fetch_aim {
    AIM_RANGES,  /* what its readers wait for */
    AIM_WHOLE,   /* all of it */
    AIM_ALONE,   /* the same, although no client uses it any more */
    AIM_NOTHING, /* no client uses it, and it requests nothing */
    AIMS
};

/* Jobs that a seal waits for: a set. */
enum {
    FETCH_HASHES = 1,
    FETCH_SAVES = 2,
};

/* The state of a range request, which sends one request of a segment after the other.
 *
 *   DUE --sent--> ASKED --its end, or a break--> OVER --its bytes are written--> gone,
 *    ^              |                                            or DUE for the next request
 *    +--put off-----+       each --stopped while a job writes its bytes--> STOPPED --> gone
 */
enum range_request_state {
    RANGE_REQUEST_DUE,     /* no request is under way; a timer or a wake-up sends the next */
    RANGE_REQUEST_ASKED,   /* a request is under way */
    RANGE_REQUEST_OVER,    /* it has ended; its bytes may still have to be written */
    RANGE_REQUEST_STOPPED, /* it is not needed any more, but a job still has its bytes */
    RANGE_REQUEST_STATES
};

/* The gathered bytes: NONE --> OUT --> NONE, or --no room yet--> HELD --> OUT. */
enum range_request_write {
    RANGE_REQUEST_WRITES_NONE,
    RANGE_REQUEST_WRITE_OUT,  /* a job has them */
    RANGE_REQUEST_WRITE_HELD, /* they wait for room; the timer tries again */
    RANGE_REQUEST_WRITES
};

extern const struct state_table fetch_states, fetch_aims, range_request_states,
    range_request_writes;

struct range_request; /* range_request.c */

struct audience { /* the readers of one loop */
    struct list node;
    struct fetch *fetch;
    struct loop *loop;
    struct list readers; /* only for the loop's thread */
    bool wanted;         /* under the fetch's lock: a reader waits */
    bool posted;         /* under the same lock: a message is on its way */
    struct message message;
};

struct fetch_reader { /* a body that follows a fetch */
    struct body body;
    uint32_t magic;
    struct fetch *fetch;   /* held by the answer */
    struct answer *answer; /* held */
    bool waiting;
    struct list node; /* in the audience of its loop */
    /* In the fetch, under its lock, as the next: no request fetches the bytes that it waits for. */
    struct list stalled;
    struct reader_need need;
    struct audience *audience;
    uint64_t first;
    uint64_t born_ms;
    bool withheld; /* it reads to the end: the last bytes are withheld until the digest matches */
};

enum { TEXT_MAX = 16 << 10 }; /* of an answer that is not an object */

struct fetch {
    uint32_t magic;
    _Atomic uint32_t refs;
    struct cache *cache;

    /* Constant once headed. */
    struct arena arena;
    struct lookup lookup; /* own copies */
    /* The clients whose turns it uses to fetch and write: the lookup's, and those that joined. Only
     * for the fetch thread. */
    struct fair_clients clients;
    struct origin *origin;
    /* Only for the fetch thread, as the next three: whom to ask before the origin, and whom now;
     * asked == neighbors: the origin. It never goes back. */
    struct neighbor neighbor[NEIGHBORS_MAX];
    unsigned neighbors, asked;
    enum lookup_parent parent; /* one that it has asked */
    uint64_t age_here_s;       /* seconds since the origin gave a neighbor the head; 0: just now */
    /* stale: a neighbor gives what it has, because the origin is in trouble */
    enum { HEAD_IS_ORIGINS, HEAD_IS_STALE } head;
    struct slice owner_etag; /* which clients get, by a neighbor; or p == NULL */
    struct slice row_key;    /* with the vary key */
    struct slice vary_key;   /* of this variant (variant.h) */
    struct object object;    /* digest and size are set by the seal */
    bool splices;  /* parts of several responses may be joined; only for the fetch thread */
    bool replaces; /* an older generation */
    _Atomic enum fetch_use use;
    /* a RANGE: larger than the quota, so only ranges are given */
    _Atomic enum share_kind counts_as;
    _Atomic bool over_share;  /* refused: its client has used its share */
    uint64_t announced_bytes; /* counted in the cache's sum */
    struct slice text;        /* during owner->other(): the body after the head; or p == NULL */
    /* Where a redirect led (REDIRECTS_HOLD); p == NULL: nowhere. Only for the fetch thread. */
    struct slice led_to;
    int fd; /* a dup, which outlives the ingest */
    uint64_t born_ms;

    struct lock lock; /* --- guards from here ... */
    struct extents have;
    uint64_t total_bytes; /* LENGTH_UNKNOWN until known */
    bool verified;
    int rc; /* not 0: failed */
    struct err why;
    /* Since when it has been requested again without receiving a byte; `trouble` is the reason. 0:
     * bytes arrive. */
    uint64_t troubled_ms;
    uint64_t gave_up_ms; /* when the last reader gave up for that reason */
    struct err trouble;
    struct list audiences;
    struct list stalled;  /* readers whose bytes no request fetches */
    struct claims claims; /* by slot, as the range requests below */
    uint32_t readers;
    uint32_t answers; /* that are held; without any, no client uses the fetch */
    bool several;     /* more than one client has asked for all of it */
    enum fetch_aim aim;
    enum fetch_state state;      /* the fetch thread reads it without the lock */
    bool readers_changed_posted; /* ... to here */
    struct message readers_changed;

    struct list node; /* in cache->fetches */
    const struct fetch_owner *owner;
    void *owner_arg;
    struct ingest *ingest;
    struct range_request *range_requests[CLAIMS_MAX];
    unsigned jobs;                 /* on the pool */
    unsigned busy;                 /* with FETCH_HASHES, FETCH_SAVES */
    uint64_t hint_first, hint_end; /* as the lookup's; of a suffix, once the length is known */
    uint64_t hastened_ms;          /* the last retry that did not wait for its time; 0: none */
    uint64_t idle_since_ms;        /* since when no client has used it; 0: a client does */
    struct going *going;           /* AIM_ALONE: the account of its client that it is on; or NULL */
    struct job stage_job;
    struct job hash_job;
    struct job seal_job;
    struct job sync_job;
    int job_rc;
    struct err job_why;
    struct batch *batch;
    struct commit_wait commit;
    int sync_rc;
    struct err sync_why;
    struct partial *earlier;  /* taken from the parked ones; goes back when the fetch ends */
    uint64_t resume_id;       /* its stage, when that is being fetched; or 0 */
    uint64_t sealed_id;       /* the stage that was sealed, until its rows are committed; or 0 */
    bool contributed;         /* the sealed bytes were not in the store before */
    uint64_t rate_mark_bytes; /* for fetch_info */
    uint64_t rate_mark_ms;
    _Atomic uint64_t rate_bytes_per_s;
};

/* --- fetch.c --- */
void fetch_becomes(struct fetch *f, enum fetch_state to);
/* Takes the lock, as the next. */
enum fetch_aim fetch_aim(struct fetch *f);
/* From now on all of it is to be fetched. No effect where that is already so. */
void fetch_aim_at_whole(struct fetch *f);
/* Lowers its use to `most`. */
void fetch_use_less(struct fetch *f, enum fetch_use most);
/* Ends the fetch with an error: readers are cut off. ended() runs when no work is under way any
 * more. */
void fetch_fail(struct fetch *f, int rc, const struct err *why);
/* Takes the first head, a 200 or 206. gives_ranges: no range was requested, or the response has
 * it. */
void fetch_learn(struct fetch *f, const struct origin_head *h, bool gives_ranges);
void fetch_led(struct fetch *f, const struct origin_head *h); /* notes where a redirect led */
/* Any thread. Bytes were written: readers get them, and they count for the client. */
void fetch_publish(struct fetch *f, unsigned slot, uint64_t first, uint64_t end);
void fetch_wake_all(struct fetch *f); /* any thread; takes the lock */
void fetch_job(struct fetch *f, struct job *j, void (*work)(struct job *),
               void (*done)(struct job *));
void fetch_job_done(struct fetch *f); /* must come first in a done() that fetch_job() started */
void fetch_settle(struct fetch *f);   /* an end that waited for jobs may now happen */
/* Under the lock. Later, on the fetch thread, it is decided whether the fetch is still used and
 * which bytes are needed. */
void fetch_post_readers_changed(struct fetch *f);
bool fetch_nearly_there(struct fetch *f);
uint64_t fetch_frontier(struct fetch *f); /* takes the lock */
/* Pool thread. n bytes of the fetch are about to be written; arriving_bytes has them. E_NOSPACE:
 * its client has used its share and there is no other room (share.h); or, if the write may wait,
 * the room there is is kept for the client's older fetches. */
MUST_USE int fetch_admit(struct fetch *f, uint64_t n, bool may_wait, struct err *e);
/* After E_NOSPACE: there may be room when the client's other fetches are sealed. */
bool fetch_may_wait(struct fetch *f);
int fetch_make_room(struct fetch *f, struct err *e); /* pool thread: one eviction run */

/* --- range_request.c --- */
void fetch_plan(struct fetch *f); /* which bytes are fetched next, and whether any are */
void range_request_start(struct fetch *f, uint64_t first, uint64_t end, const struct object *old);
enum range_requests_do {
    RANGE_REQUESTS_STOP,
    /* no client uses their bytes for now: they do not read until WAKE or FINISH */
    RANGE_REQUESTS_REST,
    RANGE_REQUESTS_WAKE,
    RANGE_REQUESTS_FINISH, /* with the bytes that have arrived */
    /* those that wait for their next try begin it now; it does not count as a try */
    RANGE_REQUESTS_HASTEN,
    RANGE_REQUESTS_ELSEWHERE, /* the neighbor is gone: the next one is asked */
    RANGE_REQUESTS_GO_ON,     /* the stage is open: gathered bytes may be written */
};
void range_requests_do(struct fetch *f, enum range_requests_do what); /* all of them */
/* its part of fetch_share() */
void range_request_share_all(struct fetch *f, uint64_t client);
unsigned range_request_count(const struct fetch *f);

/* --- seal.c --- */
/* hashes up to the first gap, and seals when all bytes are present */
void fetch_hash(struct fetch *f);
void fetch_save(struct fetch *f, uint64_t now_ms);
/* pool thread: the bytes are parked, or dropped */
void fetch_put_away(struct fetch *f, bool worth);

#endif
