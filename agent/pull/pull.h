/* pull.h - downloads one file from the mirror into the local cache, and verifies it.
 *
 * What it learns decides how it continues: a digest that is already in the cache ends it
 * immediately; an object that changes during the download restarts it; a chunk list that proves
 * wrong is dropped and one stream used. The required digest is the job's, else the mirror's
 * Repr-Digest; without either the file is recorded under the digest that it has.
 *
 * A pull holds a slot of its loop from pull_add() on: slots limit open files, buffers and
 * connections.
 *
 * events   on_done exactly once, never inside pull_add(); it may add pulls, or stop them all
 * threads  the loop's
 */
#ifndef AGENT_PULL_PULL_H
#define AGENT_PULL_PULL_H

#include "agent/pull/loop.h"

struct pull_params {
    struct slice url;
    struct digest digest; /* zero: unknown */
    uint64_t size_bytes;  /* SIZE_UNKNOWN */
    /* another URL for the same digest, for when `url` has changed; may be empty */
    struct slice other_url;
};

struct pull_result {
    int rc;
    struct err why;
    struct digest digest;
    uint64_t size_bytes;
    uint64_t fetched_bytes;
    uint64_t peer_bytes; /* of them, from other nodes */
    bool was_there;      /* in the local cache already */
};

/* The loop must have a free slot. */
void pull_add(struct pull_loop *l, const struct pull_params *w,
              void (*on_done)(void *arg, const struct pull_result *r), void *arg);

extern const struct pull_kind
    pull_kind; /* for the loop; an on_done may add pulls or stop them all */

/* --- the states of a pull; pull.c has a drawing of the transitions --- */

enum pull_state {
    PULL_NEW,        /* only the parameters are known */
    PULL_ASKING,     /* HEAD is sent, to learn size and digest */
    PULL_LOCKING,    /* waits for the lock of its partial file, which another process may hold */
    PULL_LISTING,    /* the mirror's chunk list is requested */
    PULL_FETCHING,   /* bytes are arriving */
    PULL_CHECKING,   /* complete, but with a wrong digest: which parts are damaged? */
    PULL_SEALING,    /* verified; is getting its name in the local cache */
    PULL_RESTARTING, /* restarts once the running jobs have ended */
    PULL_FAILING,    /* fails once the running jobs have ended */
    PULL_FAILED,     /* waits to be reported */
    PULL_DONE,       /* in the local cache; waits to be reported */
};
enum { PULL_STATES = PULL_DONE + 1 };

/* The only way to change the state; CHECKs that the transition exists. */
void pull_state_move(enum pull_state *at, enum pull_state to);

#endif
