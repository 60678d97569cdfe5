/* taking.h - one file of the fetch stage under way, for takes.c, taking.c, keeping.c and sealing.c alone: where its bytes go,
 * how they are hashed, kept and sealed.
 *
 * The first HASH_HERE_BYTES are hashed as they come. What follows is hashed after it was written, on the disk pool, so that a large
 * file's way takes two cores: from memory as far as RECENT_BYTES reach, else from the page cache. The hasher is the job's meanwhile.
 *
 * owns     takes.c makes it, taking_free() ends it, its engine's take included
 * threads  the run's; hashing and sealing on the disk pool meanwhile
 */
#ifndef SERVER_SYNC_TAKING_H
#define SERVER_SYNC_TAKING_H

#include "server/sync/part.h"
#include "server/store/unhashed.h"
#include "server/sync/run_priv.h"

enum {
    TAKING_VALIDATOR_MAX = 1024,
    HASH_HERE_BYTES = 1 << 20,
    RECENT_BYTES =
        16 << 20, /* of all files of a run: written, and in memory until they are hashed */
};

struct taking {       /* one file under way */
    struct list node; /* of takes.active, takes.whole, or a sealing */
    struct takes *all;
    uint32_t index;          /* in the roster */
    struct sync_entry entry; /* its slices point into the bufs below */
    struct buf path, validator, listed_validator;
    struct take *take;
    struct event *timer;   /* the next try */
    struct hasher *hasher; /* NULL: a job has it */
    struct buf
        small; /* all, as long as it would lie in a row; then a block's beginning, not written yet */
    struct stage *stage;    /* from then on */
    struct unhashed recent; /* blocks of it that no job has yet */
    uint64_t at;            /* bytes that came */
    uint64_t progress;      /* at the last failure */
    unsigned tries;
    bool again;     /* it was wrong once */
    bool small_one; /* it counts with those of engine_ops.smalls */
    bool was_there; /* the published tree has a file of this path */
    bool was_seen;  /* and this is known of it */
    struct seen old_seen;
    struct buf old_row; /* what old_seen points into */
    struct blob *basis;
    bool basis_begins;       /* it is what a former run left */
    struct keeping *keeping; /* a job at the stage; or NULL */
    bool has_row;            /* in TABLE_PARTIAL, for kept_bytes of the stage */
    bool seal_due;           /* it came whole */
    uint64_t kept_bytes, kept_ms, save_next_ms;
    uint64_t save_at; /* what came by then is to be saved as soon as it is hashed; 0: not yet */
    bool came;        /* all of it, and is being hashed to its end */
    struct take_got got;
    bool unchanged;
    struct seen seen;
};

struct takes {
    struct run *run;
    struct list active;
    struct list whole; /* small ones that wait for a sealer */
    unsigned sealers;  /* jobs that seal small ones */
    size_t next;       /* in plan.todo */
    unsigned count;
    unsigned smalls;   /* of them, beside the window */
    unsigned keepings; /* jobs */
    uint64_t recent_bytes;
    struct list parts; /* of earlier runs and attempts, nobody's yet */
    uint64_t vanished, done;
    bool over, closing;
    int rc;
    struct err why;
};

void taking_free(struct taking *t);
uint64_t
taking_expects(const struct taking *t); /* bytes, for the store to keep free; 0: who knows */
uint64_t taking_written(const struct taking *t); /* of what came, bytes that are in the stage */
MUST_USE int taking_flush(struct taking *t, struct err *e); /* all of them */
void taking_drop_recent(struct taking *t);
/* Nothing of it has come. */
void taking_begin_anew(struct taking *t);
void taking_counted(struct taking *t, uint64_t bytes); /* for those who watch */
void taking_timer(struct taking *t, uint64_t ms);
/* Events of the engine. */
MUST_USE int taking_on_begin(void *arg, uint64_t at, struct slice validator);
MUST_USE int taking_on_body(void *arg, struct slice bytes);
MUST_USE int taking_on_packed(void *arg, struct slice bytes, uint64_t wire_bytes);
MUST_USE int taking_on_copy(void *arg, struct slice bytes);
/* All of it is here and right: sealed, noted, freed; then takes_look_over(). */
void taking_seal(struct taking *t, const struct take_got *got);

/* sealing.c: takes it off `active`; what is being sealed is waited for. */
void sealing_add(struct taking *t);

/* keeping.c */
bool keeping_worth(const struct sync_entry *en); /* its stage gets a name */
/* Bytes came: hashed behind the writer, saved now and then. */
bool keeping_behind(const struct taking *t); /* the hashing is: more should wait */
void keeping_look(struct taking *t, uint64_t now_ms);
/* All came, and was flushed. True: the rest is being hashed, then takes_came(). */
MUST_USE bool keeping_hash_rest(struct taking *t);
void keeping_forget(struct taking *t); /* they are void */
void keeping_leave(struct taking *t);  /* nobody goes on with it for now: what is worth it stays */
/* True: bytes of an earlier time are being verified, then takes_ask(). False: none, or they are the basis. */
MUST_USE bool keeping_resume(struct taking *t, struct list *parts);

void takes_ask(struct taking *t);
void takes_came(struct taking *t); /* all is here and hashed: judged, sealed */
/* takes.c: the first trouble that a retry does not mend ends the stage. */
void takes_fail(struct takes *x, int rc, const struct err *why);
void takes_look_over(struct takes *x); /* after a file is done with */

#endif
