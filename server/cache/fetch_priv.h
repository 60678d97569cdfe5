/* fetch_priv.h - a fetch's inside, for fetch.c, range_request.c and seal.c.
 *
 * threads  the fetch thread, but for what `lock` guards and what is constant once headed
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

/* Up to this size an object is fetched whole although only a range was asked for. */
#define PEEK_WHOLE_BYTES ((uint64_t)1 << 20)

enum {
    FETCH_MAGIC = 0x66696c6c,
    READER_MAGIC = 0x72656164,
    GATHER_BYTES =
        256 << 10,        /* a write, and so a wake-up of all readers, waits for so much or 8 ms */
    GATHER_MAX = 1 << 20, /* then the origin is paused */
    GATHER_MS = 8,
};

/* A fetch.
 *
 *   ASKING --the head of a 200 or 206--> STAGING --the stage is open--> RUNNING --every byte is here--> SEALING --> ENDED
 *
 * From each of them to ENDED once it has failed (`rc`) and nothing is under way for it any more.
 */
enum fetch_state {
    FETCH_ASKING,  /* no head yet */
    FETCH_STAGING, /* headed, the stage is being opened */
    FETCH_RUNNING, /* bytes are written, and given to readers */
    FETCH_SEALING, /* the last ones are hashed, the blob is sealed, its rows are committed */
    FETCH_ENDED,   /* its owner knows */
    FETCH_STATES
};

/* How much of it is fetched.
 *
 *   RANGES --somebody wants all of it, or the origin gives all--> WHOLE
 *   RANGES, WHOLE --nobody wants it any more--> ALONE, where that is worth it, or NOTHING
 *   NOTHING --somebody comes--> RANGES      ALONE --somebody comes--> WHOLE
 */
enum fetch_aim {
    AIM_RANGES,  /* what its readers wait for */
    AIM_WHOLE,   /* all of it */
    AIM_ALONE,   /* the same, though nobody wants it any more */
    AIM_NOTHING, /* nobody wants it, and it asks for nothing */
    AIMS
};

/* Jobs that a seal waits for: a set. */
enum {
    FETCH_HASHES = 1,
    FETCH_SAVES = 2,
};

/* A range request: one request of a segment after the other.
 *
 *   DUE --asked--> ASKED --its end, or a break--> OVER --its bytes are written--> gone, or DUE for the next request
 *    ^               |
 *    +--put off------+      each --stopped while a job writes its bytes--> STOPPED --> gone
 */
enum range_request_state {
    RANGE_REQUEST_DUE,   /* no request is under way; a timer, or whoever wakes it, sends the next */
    RANGE_REQUEST_ASKED, /* one is */
    RANGE_REQUEST_OVER,  /* it has ended, and what came of it may still have to be written */
    RANGE_REQUEST_STOPPED, /* it is not needed any more, but for the job that has its bytes */
    RANGE_REQUEST_STATES
};

/* The bytes that it has gathered: NONE --> OUT --> NONE, or --no room yet--> HELD --> OUT. */
enum range_request_write {
    RANGE_REQUEST_WRITES_NONE,
    RANGE_REQUEST_WRITE_OUT,  /* a job has them */
    RANGE_REQUEST_WRITE_HELD, /* they wait for room; the timer has them written again */
    RANGE_REQUEST_WRITES
};

extern const struct state_table fetch_states, fetch_aims, range_request_states,
    range_request_writes;

struct range_request; /* range_request.c */

struct audience { /* the readers of one loop */
    struct list node;
    struct fetch *fetch;
    struct loop *loop;
    struct list readers; /* the loop's own */
    bool wanted;         /* under the fetch's lock: somebody waits */
    bool posted;         /* the same: a message is on its way */
    struct message message;
};

struct fetch_reader { /* a body that follows a fetch */
    struct body body;
    uint32_t magic;
    struct fetch *fetch;   /* held by the answer */
    struct answer *answer; /* held */
    bool waiting;
    struct list node; /* in the audience: its loop's */
    /* in the fetch, under its lock, as the next: nobody fetches what it waits for */
    struct list stalled;
    struct reader_need need;
    struct audience *audience;
    uint64_t first;
    uint64_t born_ms;
    bool withheld; /* it reaches the end: the tail is withheld until the digest holds */
};

enum { TEXT_MAX = 16 << 10 }; /* of an answer that is no object */

struct fetch {
    uint32_t magic;
    _Atomic uint32_t refs;
    struct cache *cache;

    /* Constant once headed. */
    struct arena arena;
    struct lookup lookup; /* own copies */
    /* in whose turns it is fetched and written: the want's, and who joined. The fetch thread's */
    struct fair_clients clients;
    struct origin *origin;
    struct slice row_key;  /* with the tail */
    struct slice vary_key; /* of the variant that it is (variant.h) */
    struct object object;  /* digest and size come with the seal */
    bool splices;          /* parts of several requests may be joined; the fetch thread's */
    bool replaces;         /* an older generation */
    _Atomic enum fetch_use use;
    _Atomic enum share_kind counts_as; /* a RANGE: more than the quota, ranges alone are given */
    _Atomic bool over_share;           /* refused: its client has had its share */
    uint64_t announced_bytes;          /* counted in the cache's sum */
    struct slice text; /* during owner->other(): what came behind the head; or p == NULL */
    /* where a redirect led (REDIRECTS_HOLD); p == NULL: nowhere. The fetch thread's */
    struct slice led_to;
    int fd; /* a dup: outlives the ingest */
    uint64_t born_ms;

    struct lock lock; /* --- guards from here ... */
    struct extents have;
    uint64_t total_bytes; /* LENGTH_UNKNOWN until known */
    bool verified;
    int rc; /* failed */
    struct err why;
    /* It was asked for again, and no byte has come of that: since then, and for that reason. 0:
     * bytes come. */
    uint64_t troubled_ms;
    uint64_t gave_up_ms; /* a reader did last, for that reason */
    struct err trouble;
    struct list audiences;
    struct list stalled;  /* readers whose bytes nobody fetches */
    struct claims claims; /* by slot of `fillers` */
    uint32_t readers;
    uint32_t answers; /* that somebody holds: without any, nobody wants it */
    bool several;     /* more than one client has asked for all of it */
    enum fetch_aim aim;
    enum fetch_state state;      /* the fetch thread reads it without */
    bool readers_changed_posted; /* ... to here */
    struct message readers_changed;

    struct list node; /* in cache->fills */
    const struct fetch_owner *owner;
    void *owner_arg;
    struct ingest *ingest;
    struct range_request *fillers[CLAIMS_MAX];
    unsigned jobs;                 /* on the pool */
    unsigned busy;                 /* with FETCH_HASHES, FETCH_SAVES */
    uint64_t hint_first, hint_end; /* as the want's; of a suffix, once the length is known */
    uint64_t hastened_ms;          /* the last retry that did not wait for its time; 0: none */
    uint64_t idle_since_ms;        /* nobody wants it since then; 0: somebody does */
    struct going *going;           /* AIM_ALONE: on its client's account; NULL: on nobody's */
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
    struct partial *earlier;  /* taken, or parked: goes back when the fetch ends */
    uint64_t resume_id;       /* its stage, when that is what is being fetched; or 0 */
    uint64_t sealed_id;       /* one that was sealed, until that is committed; or 0 */
    bool contributed;         /* nobody had the bytes that were sealed */
    uint64_t rate_mark_bytes; /* for fetch_info */
    uint64_t rate_mark_ms;
    _Atomic uint64_t rate_bytes_per_s;
};

/* --- fetch.c --- */
void fetch_becomes(struct fetch *f, enum fetch_state to);
/* Takes the lock, as the next. */
enum fetch_aim fetch_aim(struct fetch *f);
/* All of it is to be fetched from now on; nothing new where it is already. */
void fetch_aim_at_whole(struct fetch *f);
/* Its use is no more than that. */
void fetch_use_less(struct fetch *f, enum fetch_use most);
/* Breaks it off: readers are cut. ended() runs when nothing is under way any more. */
void fetch_fail(struct fetch *f, int rc, const struct err *why);
/* The first head: a 200 or 206. gives_ranges: no range was asked for, or it was given. */
void fetch_learn(struct fetch *f, const struct origin_head *h, bool gives_ranges);
void fetch_led(struct fetch *f, const struct origin_head *h); /* notes where a redirect led */
/* Any thread. Bytes were written: readers get them, and they count for the client. */
void fetch_publish(struct fetch *f, unsigned slot, uint64_t first, uint64_t end);
void fetch_wake_all(struct fetch *f); /* any thread; takes the lock */
void fetch_job(struct fetch *f, struct job *j, void (*work)(struct job *),
               void (*done)(struct job *));
void fetch_job_done(struct fetch *f); /* first thing in a done() that fetch_job() started */
void fetch_settle(struct fetch *f);   /* an end that waited for jobs may now happen */
/* Under the lock. On the fetch thread, later: whether it is still wanted, and which bytes are. */
void fetch_post_readers_changed(struct fetch *f);
bool fetch_nearly_there(struct fetch *f);
uint64_t fetch_frontier(struct fetch *f); /* takes the lock */
/* Pool. n bytes of it are about to be written: E_NOSPACE, its client has had its share and there is
 * no other room (share.h), or, where it may wait, what there is is kept for the client's elder
 * fetches. */
MUST_USE int fetch_admit(struct fetch *f, uint64_t n, bool may_wait, struct err *e);
/* After E_NOSPACE: there may be room when others of the client's fetches are sealed. */
bool fetch_may_wait(struct fetch *f);
int fetch_make_room(struct fetch *f, struct err *e); /* pool: one eviction run */

/* --- range_request.c --- */
void fetch_plan(struct fetch *f); /* which bytes next, and whether any more */
void range_request_start(struct fetch *f, uint64_t first, uint64_t end, const struct object *old);
enum range_requests_do {
    RANGE_REQUESTS_STOP,
    RANGE_REQUESTS_REST, /* nobody wants their bytes for the moment: they read no more, until one of the next two */
    RANGE_REQUESTS_WAKE,
    RANGE_REQUESTS_FINISH, /* with what has come */
    RANGE_REQUESTS_HASTEN, /* those that wait for their next try begin it now; it does not count */
    RANGE_REQUESTS_GO_ON,  /* the stage is open: gathered bytes may be written */
};
void range_requests_do(struct fetch *f, enum range_requests_do what); /* all of them */
void range_request_share_all(struct fetch *f, uint64_t client);       /* fetch_share()'s part */
unsigned range_request_count(const struct fetch *f);

/* --- seal.c --- */
void fetch_hash(struct fetch *f); /* hashes on behind the frontier, seals when all is there */
void fetch_save(struct fetch *f, uint64_t now_ms);
void fetch_put_away(struct fetch *f, bool worth); /* pool: what has come is parked, or dropped */

#endif
