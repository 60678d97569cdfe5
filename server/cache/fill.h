/* fill.h - one object on its way from the origin: a sparse stage, who fetches into it, who reads from it.
 *
 * A fill begins with one upstream request. Its head decides: a 200 or 206 makes the stage and the fill is announced
 * (headed); anything else ends it (other). Fillers fetch segments; what was written is published in `have` and the
 * readers' loops are told, one letter a loop. Bytes are hashed in order behind the frontier; when all are there the blob
 * is sealed and its rows are committed.
 *
 *   fill.c    its life, and what becomes of it when nobody wants it any more
 *   filler.c  segments: upstream requests, which answers may be joined, writes, retries
 *   seal.c    hashing, verification, sealing, the rows; what an index tells of other keys; what survives a restart
 *   claims.c  which bytes are fetched next                     reader.c  growing bodies
 *   trim.c    which variants make room                         share.c   whose bytes make room for whose
 *
 * owns     counted: the entry, every answer, every posted letter and job hold it
 * threads  the fetch thread, but for what `lock` guards and what is constant once headed
 */
#ifndef SERVER_CACHE_FILL_H
#define SERVER_CACHE_FILL_H

#include <stdatomic.h>

#include "common/base/state.h"
#include "common/os/lock.h"
#include "common/os/pool.h"
#include "server/cache/cache.h"
#include "server/cache/claims.h"
#include "server/cache/object.h"
#include "server/fetch/fetch.h"
#include "server/store/ingest.h"

#define WITHHELD_BYTES ((uint64_t)64 << 10) /* until length and digest hold */
/* Up to this size an object is fetched whole although only a range was asked for. */
#define PEEK_WHOLE_BYTES ((uint64_t)1 << 20)
/* Up to this size a fetch goes on to its end when its clients have left. */
#define SMALL_BYTES ((uint64_t)4 << 20)
/* From this size on a whole fetch is resumed after a restart; one that began with a range, from PEEK_WHOLE_BYTES on. */
#define RESUMED_BYTES ((uint64_t)64 << 20)

enum {
    FILL_MAGIC = 0x66696c6c,
    GATHER_BYTES =
        256 << 10,        /* a write, and so a wake-up of all readers, waits for so much or 8 ms */
    GATHER_MAX = 1 << 20, /* then the origin is paused */
    GATHER_MS = 8,
};

/* A fill.
 *
 *   ASKING --the head of a 200 or 206--> STAGING --the stage is open--> RUNNING --every byte is here--> SEALING --> ENDED
 *
 * From each of them to ENDED once it has failed (`rc`) and nothing is under way for it any more.
 */
enum fill_state {
    FILL_ASKING,  /* no head yet */
    FILL_STAGING, /* headed, the stage is being opened */
    FILL_RUNNING, /* bytes are written, and given to readers */
    FILL_SEALING, /* the last ones are hashed, the blob is sealed, its rows are committed */
    FILL_ENDED,   /* its owner knows */
    FILL_STATES
};

/* A filler: one request of a segment after the other.
 *
 *   DUE --asked--> ASKED --its end, or a break--> OVER --its bytes are written--> gone, or DUE for the next request
 *    ^               |
 *    +--put off------+      each --stopped while a job writes its bytes--> STOPPED --> gone
 */
enum filler_state {
    FILLER_DUE,     /* no request is under way; a timer, or whoever wakes it, sends the next */
    FILLER_ASKED,   /* one is */
    FILLER_OVER,    /* it has ended, and what came of it may still have to be written */
    FILLER_STOPPED, /* it is not needed any more, but for the job that has its bytes */
    FILLER_STATES
};

/* The bytes that it has gathered: NONE --> OUT --> NONE, or --no room yet--> HELD --> OUT. */
enum filler_write {
    FILLER_WRITES_NONE,
    FILLER_WRITE_OUT,  /* a job has them */
    FILLER_WRITE_HELD, /* they wait for room; the timer has them written again */
    FILLER_WRITES
};

struct fill;
struct fill_owner { /* all on the fetch thread */
    /* Bytes may be read: answer those who wait. */
    void (*headed)(void *arg, struct fill *f);
    /* The first head was something else; ended() follows with E_CANCELLED. */
    void (*other)(void *arg, struct fill *f, const struct fetch_head *h);
    /* Once, last. rc 0: sealed and committed (or complete and not to be kept). The owner's count is still its own. */
    void (*ended)(void *arg, struct fill *f, int rc, const struct err *why);
};

struct filler; /* filler.c */

struct audience { /* the readers of one loop */
    struct list node;
    struct fill *fill;
    struct loop *loop;
    struct list readers; /* the loop's own */
    bool wanted;         /* under the fill's lock: somebody waits */
    bool posted;         /* the same: a letter is on its way */
    struct letter letter;
};

enum { TEXT_MAX = 16 << 10 }; /* of an answer that is no object */

struct fill {
    uint32_t magic;
    _Atomic uint32_t refs;
    struct cache *cache;

    /* Constant once headed. */
    struct arena arena;
    struct want want; /* own copies */
    struct fair_clients
        clients; /* in whose turns it is fetched and written: the want's, and who joined. The fetch thread's */
    struct origin *origin;
    struct slice row_key;     /* with the tail */
    struct slice tail;        /* of the variant that it is (variant.h) */
    struct object object;     /* digest and size come with the seal */
    bool splices;             /* parts of several requests may be joined; the fetch thread's */
    bool named;               /* the stage survives a restart */
    _Atomic bool keep;        /* becomes a row */
    _Atomic bool too_large;   /* more than the quota: ranges alone are given */
    uint64_t announced_bytes; /* counted in the cache's sum */
    _Atomic bool over_share;  /* refused: its client has had its share */
    bool brought;             /* nobody had the bytes that were sealed */
    bool shared;              /* who asks once its head has come may have it too */
    struct slice text;        /* during owner->other(): what came behind the head; or p == NULL */
    bool replaces;            /* an older generation */
    struct slice
        led_to; /* where a redirect led (redirect_holds); p == NULL: nowhere. The fetch thread's */
    int fd;     /* a dup: outlives the ingest */
    uint64_t born_ms;

    struct lock lock; /* --- guards from here ... */
    struct extents have;
    uint64_t total_bytes; /* LENGTH_UNKNOWN until known */
    bool verified;
    int rc; /* failed */
    struct err why;
    /* It was asked for again, and no byte has come of that: since then, and for that reason. 0: bytes come. */
    uint64_t troubled_ms;
    uint64_t gave_up_ms; /* a reader did last, for that reason */
    struct err trouble;
    struct list audiences;
    struct list stalled;  /* readers whose bytes nobody fetches */
    struct claims claims; /* by slot of `fillers` */
    uint32_t readers;
    uint32_t answers; /* that somebody holds: without any, nobody wants it */
    bool several;     /* more than one client has asked for all of it */
    bool idle;        /* nobody wants it, and it asks for nothing */
    bool ended;       /* no letter may be sent any more */
    bool whole_wanted;
    bool demand_posted; /* ... to here */
    struct letter demand;

    struct list node; /* in cache->fills */
    enum fill_state state;
    const struct fill_owner *owner;
    void *owner_arg;
    struct ingest *ingest;
    struct filler *fillers[CLAIMS_MAX];
    unsigned jobs; /* on the pool */
    bool framed;
    bool want_all;
    uint64_t hint_first, hint_end; /* as the want's; of a suffix, once the length is known */
    bool hash_busy;                /* a job hashes, or seals */
    bool stopping;                 /* the cache closes: park */
    uint64_t hastened_ms;          /* the last retry that did not wait for its time; 0: none */
    uint64_t idle_since_ms;        /* nobody wants it since then; 0: somebody does */
    bool going_on;                 /* nobody wants it, and it is fetched to its end all the same, */
    struct going *going;           /* ... on its client's account; NULL: on nobody's */
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
    bool sync_busy;
    struct partial *earlier;  /* taken, or parked: goes back when the fill ends */
    uint64_t resume_id;       /* its stage, when that is what is being fetched; or 0 */
    uint64_t sealed_id;       /* one that was sealed, until that is committed; or 0 */
    uint64_t rate_mark_bytes; /* for fill_info */
    uint64_t rate_mark_ms;
    _Atomic uint64_t rate_bytes_per_s;
};

/* old: the generation that this one revalidates, or NULL. first, end: what to ask first (0, LENGTH_UNKNOWN: all). */
struct fill *fill_start(struct cache *c, const struct want *w, struct slice row_key,
                        const struct object *old, const struct fill_owner *owner, void *arg);
struct fill *fill_hold(struct fill *f);
void fill_release(struct fill **fp);
bool fill_is_headed(const struct fill *f);
/* An answer made of it is given out for that want; the last one given back: what becomes of it is decided. */
void fill_answered(struct fill *f, const struct want *w);
void fill_given_back(struct fill *f); /* any thread */
/* Another client waits for it: what it queues for is done in whichever's turn comes first. */
void fill_share(struct fill *f, uint64_t client);
/* Nobody waits for its head any more: it ends, and that says nothing of the origin. Not once its head has come. */
void fill_forsake(struct fill *f);
/* Breaks it off: readers are cut. ended() runs when nothing is under way any more. */
void fill_fail(struct fill *f, int rc, const struct err *why);
/* The cache closes: as fill_fail, but what can be resumed is parked. */
void fill_stop(struct fill *f);
/* Every second: abandoned ones, maps to be saved, rates. */
void fill_tick(struct fill *f, uint64_t now_ms);

/* --- between the files of this module --- */
extern const struct state_table fill_states;
void fill_becomes(struct fill *f, enum fill_state to);
/* The first head: a 200 or 206. gives_ranges: no range was asked for, or it was given. */
void fill_learn(struct fill *f, const struct fetch_head *h, bool gives_ranges);
void fill_led(struct fill *f, const struct fetch_head *h); /* notes where a redirect led */
void fill_publish(struct fill *f, unsigned slot, uint64_t first, uint64_t end); /* any thread */
void fill_wake_all(struct fill *f);                       /* any thread; takes the lock */
void fill_trouble(struct fill *f, const struct err *why); /* a retry has brought nothing */
/* A reader that has no byte yet, and waits for these since then, has waited long enough. Any thread, under the lock. */
bool fill_is_troubled(const struct fill *f, uint64_t since_ms, uint64_t now_ms);
/* Would a new reader wait for bytes that do not come? False: they are here, or are asked for once more on its behalf. */
bool fill_turns_away(struct fill *f, const struct want *w, struct err *why);
void fill_job(struct fill *f, struct job *j, void (*work)(struct job *),
              void (*done)(struct job *));
void fill_job_done(struct fill *f); /* first thing in a done() that fill_job() started */
void fill_settle(struct fill *f);   /* an end that waited for jobs may now happen */
void fill_plan(struct fill *f);     /* filler.c */
/* Under the lock. On the fetch thread, later: whether it is still wanted, and which bytes are. */
void fill_post_demand(struct fill *f);
/* A fill that nobody wants stops asking, or goes on to its end; and ends when nobody has come back. */
void fill_abandon(struct fill *f);
bool fill_nearly_there(struct fill *f);
void fill_hash(struct fill *f); /* seal.c: hashes on behind the frontier, seals when all is there */
bool fill_complete(struct fill *f);
/* A 200 or 206 that cannot be what is wanted (want.h: no_html), by its head. */
bool fill_is_refused(const struct fill *f, const struct fetch_head *h);
/* trim.c; pool. The rows that its own puts out. True: they are pinned, and it is not kept itself. */
void variants_trim(struct fill *f, struct batch *b);
MUST_USE bool variants_refuse(struct fill *f);
void reader_wake(struct list *node); /* reader.c: a member of an audience */
/* What the next stalled reader waits for; takes it off the list. Under the lock. */
bool reader_need(struct fill *f, struct reader_need *out);
/* seal.c: an earlier fill's part, taken when there is one. True: it is gone on with, if it is still the same. */
MUST_USE bool fill_take_part(struct fill *f);
void fill_save(struct fill *f, uint64_t now_ms);
void fill_put_away(struct fill *f, bool worth); /* pool: what has come is parked, or dropped */
uint64_t fill_frontier(struct fill *f);         /* takes the lock */
/* Pool. n bytes of it are about to be written: E_NOSPACE, its client has had its share and there is no other room (share.h), or,
 * where it may wait, what there is is kept for the client's elder fills. */
MUST_USE int fill_admit(struct fill *f, uint64_t n, bool may_wait, struct err *e);
/* After E_NOSPACE: there may be room when others of the client's fills are sealed. */
bool fill_may_wait(struct fill *f);
/* Its length is known, or forgotten with 0. */
void fill_announce(struct fill *f, uint64_t bytes);
void fill_wrote(struct fill *f, uint64_t n);       /* pool: so they count */
int fill_make_room(struct fill *f, struct err *e); /* pool: one eviction run */

/* filler.c */
extern const struct state_table filler_states, filler_writes;
void filler_start(struct fill *f, uint64_t first, uint64_t end, const struct object *old);
void filler_stop_all(struct fill *f);
/* Nobody wants their bytes for the moment: they read no more, until they are woken, or finished with what has come. */
void filler_rest_all(struct fill *f);
void filler_wake_all(struct fill *f);
/* Those that wait for their next try begin it now; it does not count. */
void filler_hasten_all(struct fill *f);
void filler_finish_all(struct fill *f);
void filler_share_all(struct fill *f, uint64_t client); /* fill_share()'s part */
void filler_go(struct fill *f); /* the stage is open: gathered bytes may be written */
unsigned filler_count(const struct fill *f);

#endif
