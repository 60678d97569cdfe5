/* run.h - runs a plan to its end: the adapter is asked (repo/repo.h), what it needs is provided,
 * and it is asked again.
 *
 * Requests, prefetches and the control socket all run plans here; a new kind of dependency is added
 * in run.c alone. Callers differ in how they wait: plan_run_start() continues by messages to its
 * loop, plan_run_wait() blocks its thread.
 *
 *      start --> ASKING ----> PLANNED   the plan needs nothing more
 *                 ^  |  \---> FAILED    or there is no plan
 *      the result |  |
 *      has come   |  +-----> READING    rows: a pool thread, or the one that waits
 *                 +----------FETCHING   documents of the cache, and their results (paged_fetch.h)
 *                            BODY       the request's own
 *
 *      any --> LEFT   the client is gone: nothing more comes, results stay until plan_run_fini()
 *
 * owns     the caller owns the struct and what its own fields point to; results belong to the run
 *          until plan_run_fini()
 * threads  one at a time: the planner's loop; with plan_run_wait() a thread that may block, never a
 *          loop
 */
#ifndef SERVER_PLAN_RUN_H
#define SERVER_PLAN_RUN_H

#include "common/base/state.h"
#include "server/net/loop.h"
#include "server/repo/repo.h"

/* --- what runs use: one planner per loop --- */
struct body_memory;
struct planner_deps {
    struct store *store;
    struct cache *cache;
    struct pool *readers;
    struct body_memory *memory; /* for the memory of requests; NULL: it is not counted */
    size_t document_bytes;      /* the largest one that is read */
    /* A row of TABLE_ORIGIN that is absent here, from another mirror; blocks, on askers.
     * E_NOTFOUND: none has it; other errors: one that may have it does not answer. NULL: none is
     * asked. */
    int (*fetch_row)(void *arg, struct slice key, struct buf *out, struct err *e);
    void *fetch_row_arg;
    struct pool *askers; /* NULL with fetch_row */
    /* A tree, branch or version that is absent here may be there on another mirror: true if
     * something has come; blocks. NULL: this mirror stands alone. */
    bool (*catch_up)(void *arg);
    void *catch_up_arg;
};
struct planner;
struct planners;
struct planners *planners_open(const struct planner_deps *deps, struct loops *ls);
struct planner *planners_at(struct planners *ps, unsigned loop);
/* Invalidates the paged fetches of that repo (p == NULL: any) and key (p == NULL: any). On its
 * loop. */
void planner_forget(struct planner *pl, struct slice repo, struct slice key);
void planners_close(struct planners **ps); /* after the loops have ended; no run is under way */

/* --- one run --- */
enum plan_run_state {
    PLAN_RUN_NEW,
    PLAN_RUN_ASKING,
    PLAN_RUN_READING,
    PLAN_RUN_FETCHING,
    PLAN_RUN_BODY,
    PLAN_RUN_PLANNED,
    PLAN_RUN_FAILED,
    PLAN_RUN_LEFT
};
extern const struct state_table plan_run_states;

struct plan_events { /* all run on the run's loop */
    /* For a plan that requires a right or a method: may it continue? False: the request is
     * answered, and ASKING was the run's last state. */
    bool (*admit)(void *arg);
    void (*body)(void *arg); /* the request's body is needed: answer with plan_run_body() */
    void (*planned)(void *arg);
    void (*refused)(void *arg, int rc, const struct err *why); /* the adapter makes no plan */
    void (*failed)(void *arg, int rc, const struct err *why);  /* what it needs cannot be read */
    void (*no_memory)(void *arg); /* its client holds too much memory for what it needs */
};

struct plan_run {
    /* --- set by the caller --- */
    struct planner *planner;
    struct repo *repo;
    uint64_t generation; /* the repo's, when the request began */
    const struct http_req *req;
    struct slice path; /* below the repo, raw */
    const struct principal *who;
    struct arena *arena; /* of the plan; it may end before the results */
    struct plan *plan;
    /* Nothing is written and no document is fetched: a plan that needs one fails with
     * E_NOTFOUND. */
    bool reads_only;
    /* --- private to the run --- */
    enum plan_run_state state;
    struct results results;
    struct list known;     /* results, except those of paged fetches */
    size_t known_bytes;    /* that these hold */
    struct known *reading; /* NULL: no row is being read */
    /* the paged fetch that it waits for, or that results point into; NULL: none */
    struct paged_fetch_use *use;
    const struct plan_events *events;
    void *arg;
    struct waiter *waiter; /* the thread that waits for a paged fetch */
};

void plan_run_init(struct plan_run *r); /* zeroed, or with the caller's fields */
/* One of the events ends it, possibly before this returns. It can then be started again: results
 * are kept. */
void plan_run_start(struct plan_run *r, const struct plan_events *events, void *arg);
void plan_run_body(struct plan_run *r, int rc,
                   struct slice bytes); /* bytes must live as long as the run */
void plan_run_leave(struct plan_run *r);
/* Blocks. On 0, *r->plan is not PLAN_DEPENDENCY. stop is checked from time to time and ends it with
 * E_CANCELLED; NULL: never. The request must have no body. */
MUST_USE int plan_run_wait(struct plan_run *r, const _Atomic bool *stop, struct err *e);
/* Forgets results from rows: an index that arrived since they were read may have changed them. */
void plan_run_forget_rows(struct plan_run *r);
/* Does the caller have a token with which its no-cache may cause a request to the origin at any
 * time? */
bool plan_run_forces_refresh(const struct plan_run *r, struct slice subject);
void plan_run_fini(struct plan_run *r); /* blocks where plan_run_wait() did */

#endif
