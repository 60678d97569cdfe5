/* serve_loop.h - what one loop has at hand: the repos in force, its table of resolved answers; and
 * the notes on one visit. */
#ifndef SERVER_REQUEST_SERVE_LOOP_H
#define SERVER_REQUEST_SERVE_LOOP_H

#include "server/gate/client_slots.h"
#include "server/request/response_cache.h"
#include "server/request/serve.h"
#include "server/request/traffic.h"

struct serve_loop;
struct frontend;
struct planner;
struct quiet;
struct serve {
    struct serve_deps deps;
    struct renderings *renderings;
    struct client_slots blob_batches; /* answers of many blobs, made or on their way */
    const struct frontend *const *doors;
    struct serve_loop *serve_loop; /* [loops] */
};

struct serve_loop { /* loop->local */
    struct serve *serve;
    const struct serve_deps *deps;
    struct loop *loop;
    struct repo_set *set; /* held */
    struct response_cache *cached_response;
    struct planner *planner;
    unsigned flows;      /* uploads under way: they need the disk pool to end in order */
    struct quiet *quiet; /* who waits for the last of them; NULL: nobody */
    /* Of forgetting: an answer resolved before the last response_cache_forget() may not be added
     * after it. */
    uint64_t generation;
};

/* The exchange's user pointer, in its arena: what is known at the end, for the log and the
 * counters. */
struct request_log {
    const struct frontend *frontend; /* by which it came in */
    struct repo *repo;               /* NULL: ours */
    enum cache_state state;
    bool cached;                             /* state counts */
    struct principal who;                    /* released at the end */
    struct pace *pace;                       /* held until the end; NULL: no limit */
    struct cached_response *cached_response; /* held until the end */
    struct request *request;                 /* held until the end */
};

void serve_loop_flow_over(struct serve_loop *d); /* an upload is over, its call released */

#endif
