/* run.h - a plan, run to its end: the adapter is asked (repo/repo.h), what it needs to know is
 * brought, and it is asked again.
 *
 * Requests, prefetches and the control socket all run plans here; a new kind of need is written in
 * run.c alone. Callers differ in how they wait: plan_run_start() goes on by messages to its loop,
 * plan_run_wait() blocks its thread.
 *
 *      start --> ASKING ----> PLANNED   the plan needs nothing more
 *                 ^  |  \---> FAILED    or there is none
 *      the result   |  |
 *      has come   |  +-----> READING    rows: a pool thread, or the one that waits
 *                 +----------GATHERING  documents of the cache, and what is made of them (paged_fetch.h)
 *                            BODY       the request's own
 *
 *      any --> LEFT   the client is gone: nothing more comes, what was learned stays until plan_run_fini()
 *
 * owns     the caller's memory, and what its fields point to; results are the run's own, until
 *          plan_run_fini()
 * threads  one at a time: the planner's loop; with plan_run_wait() one that blocks, never a loop
 */
#ifndef SERVER_PLAN_RUN_H
#define SERVER_PLAN_RUN_H

#include "common/base/state.h"
#include "server/net/loop.h"
#include "server/repo/repo.h"

/* --- what runs use: one planner a loop --- */
struct body_memory;
struct planner_deps {
    struct store *store;
    struct cache *cache;
    struct pool *readers;
    struct body_memory *memory; /* that requests hold; NULL: it is not counted */
    size_t document_bytes;      /* the largest one that is read */
};
struct planner;
struct planners;
struct planners *planners_open(const struct planner_deps *deps, struct loops *ls);
struct planner *planners_at(struct planners *ps, unsigned loop);
/* What was gathered for that repo (p == NULL: any), of that key (p == NULL: any), is void from now
 * on. Its loop. */
void planner_forget(struct planner *pl, struct slice repo, struct slice key);
void planners_close(struct planners **ps); /* after the loops are gone; no run is under way */

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

struct plan_events { /* all on the run's loop */
    /* A plan that takes a right, or a method: may it go on? False: it is answered; ASKING was the
     * run's last state. */
    bool (*admit)(void *arg);
    void (*body)(void *arg); /* answer by plan_run_body() */
    void (*planned)(void *arg);
    void (*refused)(void *arg, int rc, const struct err *why); /* the adapter makes no plan of it */
    void (*failed)(void *arg, int rc, const struct err *why);  /* what it needs cannot be read */
    void (*no_memory)(void *arg); /* its client holds too much for what it needs */
};

struct plan_run {
    /* The caller's: */
    struct planner *planner;
    struct repo *repo;
    uint64_t generation; /* the repo's, when the request began */
    const struct http_req *req;
    struct slice path; /* below the repo, raw */
    const struct principal *who;
    struct arena *arena; /* of the plan, which need not live as long as results */
    struct plan *plan;
    /* nothing is written, no document is brought: a plan that needs it fails with E_NOTFOUND */
    bool reads_only;
    /* The run's: */
    enum plan_run_state state;
    struct results results;
    struct list known;           /* results but for gathered ones */
    size_t known_bytes;          /* that these hold */
    struct known *reading;       /* NULL: none is being read */
    struct paged_fetch_use *use; /* of what is waited for, or results point into; NULL: none */
    const struct plan_events *events;
    void *arg;
    struct waiter *waiter; /* the thread that waits for what is gathered */
};

void plan_run_init(struct plan_run *r); /* zeroed, or with the caller's fields */
/* One of the events ends it, maybe before this returns. After its end it may be started anew:
 * results are kept. */
void plan_run_start(struct plan_run *r, const struct plan_events *events, void *arg);
void plan_run_body(struct plan_run *r, int rc,
                   struct slice bytes); /* they live as long as the run */
void plan_run_leave(struct plan_run *r);
/* Blocks: 0, and *r->plan is not PLAN_DEPENDENCY. stop: looked at now and then, E_CANCELLED; NULL:
 * never. The request has no body. */
MUST_USE int plan_run_wait(struct plan_run *r, const _Atomic bool *stop, struct err *e);
/* An index that came in meanwhile may have told what the rows did not when they were read. */
void plan_run_forget_rows(struct plan_run *r);
/* Has the caller a token with which its no-cache may have the origin asked at any time? */
bool plan_run_forces_refresh(const struct plan_run *r, struct slice subject);
void plan_run_fini(struct plan_run *r); /* blocks where plan_run_wait() did */

#endif
