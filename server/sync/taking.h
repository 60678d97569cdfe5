/* taking.h - one file of the fetch stage under way, for takes.c and taking.c alone: its bytes go into an ingest, and what came whole
 * becomes a blob.
 *
 * The first HASH_HERE_BYTES are hashed as they come. What follows is hashed after it was written, on the disk pool, so that a large
 * file's way takes two cores. A large file outlives its try: it is saved now and then and when it is given up, and found and
 * verified when it is asked for again. One job at a time is at a file; a taking that leaves before its job has ended leaves the
 * ingest to it.
 *
 * Small files share jobs and commits: what comes while both sealers are at work is the next one's, so a lone file waits for nobody
 * and a hundred thousand do not wait for as many commits.
 *
 * owns     takes.c makes it, taking_free() ends it, its engine's take included
 * threads  the run's; hashing, saving and sealing on the disk pool
 */
#ifndef SERVER_SYNC_TAKING_H
#define SERVER_SYNC_TAKING_H

#include "server/store/ingest.h"
#include "server/sync/run_priv.h"
#include "server/sync/seen.h"

enum { TAKING_VALIDATOR_MAX = 1024 };

struct taking {       /* one file under way */
    struct list node; /* of takes.active, takes.whole, or a sealing */
    struct takes *all;
    uint32_t index;          /* in the roster */
    struct sync_entry entry; /* its slices point into the bufs below */
    struct buf path, validator, listed_validator;
    struct take *take;
    struct event *timer;  /* the next try */
    struct ingest *in;    /* NULL: nothing has come */
    struct partial *kept; /* what its row says; NULL: there is none */
    struct keeping *job;  /* at the ingest; or NULL */
    uint64_t save_at;     /* what came by then is to be saved as soon as it is hashed; 0: not yet */
    uint64_t progress;    /* at the last failure */
    unsigned tries;
    bool again;     /* it was wrong once */
    bool small_one; /* it counts with those of engine_ops.smalls */
    bool was_there; /* the published tree has a file of this path */
    bool was_seen;  /* and this is known of it */
    struct seen old_seen;
    struct buf old_row; /* what old_seen points into */
    struct blob *basis;
    bool basis_begins; /* it is what a former run left */
    bool came;         /* all of it, and is being hashed to its end */
    bool unchanged;
    struct take_got got;
    struct seen seen;
};

struct takes {
    struct run *run;
    struct list active;
    struct list whole; /* small ones that wait for a sealer */
    unsigned sealers;  /* jobs that seal small ones */
    size_t next;       /* in plan.todo */
    unsigned count;
    unsigned smalls; /* of them, beside the window */
    unsigned jobs;   /* at their bytes */
    _Atomic uint64_t recent_bytes;
    uint64_t vanished, done;
    bool over, closing;
    int rc;
    struct err why;
};

void taking_free(struct taking *t);
uint64_t taking_at(const struct taking *t); /* bytes that came */
/* Nothing of it has come, or what has is void. */
void taking_forget(struct taking *t);
void taking_begin_anew(struct taking *t);
/* True: bytes of an earlier time are being verified, then takes_ask(). False: there are none, or they are the basis. */
MUST_USE bool taking_resume(struct taking *t);
void taking_timer(struct taking *t, uint64_t ms);
/* Events of the engine. */
MUST_USE int taking_on_begin(void *arg, uint64_t at, struct slice validator);
MUST_USE int taking_on_body(void *arg, struct slice bytes);
MUST_USE int taking_on_packed(void *arg, struct slice bytes, uint64_t wire_bytes);
MUST_USE int taking_on_copy(void *arg, struct slice bytes);
/* All came: takes_came() follows, at once or when it is hashed. */
MUST_USE int taking_came(struct taking *t, struct err *e);
/* It is hashed: seen.digest and seen.size_bytes are its own. */
MUST_USE int taking_finish(struct taking *t, struct err *e);
/* All of it is here and right: sealed, noted, freed; then takes_look_over(). It leaves `active`; what is being sealed is waited for. */
void taking_seal(struct taking *t, const struct take_got *got);

void takes_ask(struct taking *t);
void takes_came(struct taking *t); /* all is here and hashed: judged, sealed */
/* takes.c: the first trouble that a retry does not mend ends the stage. */
void takes_fail(struct takes *x, int rc, const struct err *why);
void takes_look_over(struct takes *x); /* after a file is done with */

#endif
