/* pull.h - one file from the mirror onto the shelf, verified.
 *
 * ask (HEAD) -> lock its key -> chunk list, when the mirror has one -> parts in parallel, or one stream -> the whole
 * SHA-256 -> shelf. What is learned on the way decides: a digest on the shelf ends it at once; an object that changes
 * under way begins anew; a chunk list that proves wrong is dropped for the stream. The digest that must hold is the
 * job's, else the mirror's Repr-Digest, else what came is recorded under what it hashed to.
 *
 * A pull holds a seat of the puller from pull_add() on: files open, buffers, connections are bounded by those.
 *
 * events   on_done exactly once, on the puller's loop; never inside pull_add()
 */
#ifndef AGENT_PULL_PULL_H
#define AGENT_PULL_PULL_H

#include "agent/pull/ask.h"
#include "agent/pull/follow.h"
#include "agent/pull/parts.h"
#include "agent/pull/puller.h"
#include "agent/pull/sealing.h"

struct pull_want {
    struct slice url;
    struct digest digest; /* zero: not known */
    uint64_t size_bytes;  /* SIZE_UNKNOWN */
    struct slice
        other_url; /* where the digest itself can be asked for when `url` has changed; may be empty */
};

struct pull_result {
    int rc;
    struct err why;
    struct digest digest;
    uint64_t size_bytes;
    uint64_t fetched_bytes;
    uint64_t peer_bytes; /* of them, from other nodes */
    bool was_there;      /* on the shelf already */
};

enum pull_phase {
    PULL_START,
    PULL_ASK,
    PULL_LOCK,
    PULL_LIST,
    PULL_FETCH,
    PULL_SEAL,
    PULL_DONE,  /* waits for the puller to end it */
    PULL_DRAIN, /* transfers are cancelled, jobs still run; then `drained` says what next */
};
enum pull_next { NEXT_RESTART, NEXT_RESCAN, NEXT_FAIL };

struct neighbour;
struct swarm;

struct lane { /* one request under way */
    struct list node;
    struct pull *pull;
    struct xfer *x;
    struct neighbour *from; /* NULL: the mirror */
    struct block *block;    /* being filled */
    uint64_t first;         /* of the range asked for */
    uint64_t last;
    uint64_t asked_ms;
    unsigned hurried;       /* how often it was asked for anew for being slow */
    uint64_t retry_after_s; /* that an error asked for */
    int refused;            /* the status of a refusal, whose body is its reason; else 0 */
    struct ask_reason reason;
    bool paused; /* no block was free */
    bool ranged;
    bool framed;
};

struct pull {
    struct list node;
    struct puller *pl;
    struct arena arena;
    struct pull_want want;
    void (*on_done)(void *arg, const struct pull_result *r);
    void *arg;
    enum pull_phase phase;
    enum pull_next drained;
    struct slice url; /* want.url or want.other_url */
    struct digest digest;
    bool known; /* digest */
    bool bound; /* digest was asked for: by the job or a listing, not learned from this answer */
    uint64_t size_bytes;
    char etag[PARTS_ETAG_ROOM]; /* strong, or "" */
    struct slice list_url;
    struct ask *ask;
    struct shelf_lock *lock;
    uint64_t waits_since_ms; /* for the lock; UINT64_MAX: and it was said */
    struct digest key;
    struct chunk_list list;
    bool chunked;
    bool list_lies;
    bool no_ranges; /* a range was answered by the whole */
    struct parts *parts;
    struct follow *follow;
    bool hashed; /* small enough to be hashed where it was written: nothing to follow */
    struct digest got;
    struct list lanes;
    struct swarm *swarm; /* NULL: none */
    unsigned jobs;       /* on pools */
    struct job job;      /* sealing, rescanning */
    struct sealing sealing;
    struct job saving; /* of the resume state */
    struct buf snapshot;
    bool save_runs;
    bool rescanned;
    bool discard;    /* the partial file, when it restarts */
    uint8_t *rotten; /* of a rescan: parts that are not what the list says */
    int job_rc;
    struct err job_why;
    uint8_t *bad_tries; /* one a chunk */
    uint64_t part_ms;   /* that a part takes, of late; 0: none has come */
    uint64_t dirty_bytes;
    uint64_t saved_at_ms;
    uint64_t not_before_ms;
    unsigned tries;
    unsigned restarts;
    uint64_t shown_bytes; /* of done_bytes and known_bytes of the puller */
    uint64_t shown_known;
    struct pull_result result;
};

struct pull *pull_add(struct puller *pl, const struct pull_want *w,
                      void (*on_done)(void *arg, const struct pull_result *r), void *arg);

/* The puller's business. */
void pull_feed(struct pull *p);
void pull_tick(struct pull *p, uint64_t now_ms);
void pull_stop(struct pull *p);
void pull_end(struct pull *p); /* calls on_done and frees */

/* Between pull.c (its life), learn.c, fetch.c, block.c and seal.c (its phases). */
void pull_succeed(struct pull *p, const struct digest *d, uint64_t size_bytes, bool was_there);
void pull_fail(struct pull *p, int rc, const struct err *why);
void pull_restart(struct pull *p, bool discard, int rc, const struct err *why);
void pull_retry_later(struct pull *p, int rc, const struct err *why, uint64_t after_s);
void pull_drain(struct pull *p, enum pull_next next);
void pull_drained(struct pull *p); /* has it? then on with `next` */
/* E_CORRUPT, and the two digests. */
int pull_differs(const struct pull *p, const struct digest *got, struct err *e);
void learn_feed(struct pull *p);
void fetch_feed(struct pull *p);
void block_submit(struct pull *p, struct block *b, struct neighbour *from); /* NULL: the mirror's */
void fetch_cancel_lanes(struct pull *p);
void fetch_tick(struct pull *p, uint64_t now_ms);
void pull_job_ended(struct pull *p); /* a job, a lane or a stretch of hashing: is that all? */
void seal_followed(void *arg, int rc, const struct err *why); /* follow.h's moved() */
void seal_rescan(struct pull *p);

#endif
