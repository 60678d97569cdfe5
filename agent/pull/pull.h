/* pull.h - one file from the mirror into the local cache, verified.
 *
 * What is learned on the way decides: a digest that is in the cache ends it at once; an object that
 * changes under way begins anew; a chunk list that proves wrong is dropped for one stream. The
 * digest that must hold is the job's, else the mirror's Repr-Digest, else what came is recorded
 * under what it hashed to.
 *
 * A pull holds a slot of its loop from pull_add() on: files open, buffers, connections are bounded
 * by those.
 *
 * events   on_done exactly once, never inside pull_add(); it may add pulls, or stop them all
 * threads  the loop's
 */
#ifndef AGENT_PULL_PULL_H
#define AGENT_PULL_PULL_H

#include "agent/pull/loop.h"

struct pull_params {
    struct slice url;
    struct digest digest; /* zero: not known */
    uint64_t size_bytes;  /* SIZE_UNKNOWN */
    /* where the digest itself can be asked for when `url` has changed; may be empty */
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

/* There is a slot for it. */
void pull_add(struct pull_loop *l, const struct pull_params *w,
              void (*on_done)(void *arg, const struct pull_result *r), void *arg);

extern const struct pull_kind
    pull_kind; /* the loop's business; an on_done may add pulls or stop them all */

/* --- where a pull stands; the transitions are drawn in pull.c --- */

enum pull_state {
    PULL_NEW,        /* nothing is known but what is wanted */
    PULL_ASKING,     /* HEAD is sent: what is it? */
    PULL_LOCKING,    /* waits for the lock of its partial file, which another process may hold */
    PULL_LISTING,    /* the mirror's chunk list is asked for */
    PULL_FETCHING,   /* bytes come */
    PULL_CHECKING,   /* all came, and hash to another digest: which parts are damaged? */
    PULL_SEALING,    /* verified; gets its name in the local cache */
    PULL_RESTARTING, /* begins anew once the jobs that run have ended */
    PULL_FAILING,    /* ends once the jobs that run have ended */
    PULL_FAILED,     /* waits to be reported */
    PULL_DONE,       /* in the local cache; waits to be reported */
};
enum { PULL_STATES = PULL_DONE + 1 };

/* The only way from one to another; CHECKs that there is one. */
void pull_state_move(enum pull_state *at, enum pull_state to);

#endif
