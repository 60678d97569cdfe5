/* serve_loop.h - what one loop has: the repos in force and its table of resolved answers; and the
 * log record of one request.
 *
 * owns     struct serve owns the serve loops; a serve loop holds its repo set
 * threads  each serve loop belongs to its loop
 */
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
struct xfer_loop;
struct serve {
    struct serve_deps deps;
    struct renderings *renderings;
    struct client_slots blob_batches; /* answers of many blobs, being made or sent */
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
    struct xfer_loop *relays; /* to other mirrors of the cluster; NULL: there was none yet */
    unsigned flows;           /* uploads under way, which still use the disk pool or `relays` */
    struct quiet *quiet;      /* waits for the last of them; NULL: nobody waits */
    /* Counts calls of response_cache_forget(): an answer that was resolved before the last call may
     * not be added after it. */
    uint64_t generation;
};

/* The exchange's user pointer, in its arena: what the log and the counters need at the end. */
struct request_log {
    const struct frontend *frontend; /* the frontend that took the request */
    struct repo *repo;               /* NULL: a path of ours */
    enum cache_state state;
    bool cached;                             /* `state` is set */
    bool relayed;                            /* another mirror has passed it on (relay.h) */
    struct principal who;                    /* released at the end */
    struct pace *pace;                       /* held until the end; NULL: no limit */
    struct cached_response *cached_response; /* held until the end */
    struct request *request;                 /* held until the end */
};

/* an upload has ended and its request is released */
void serve_loop_flow_over(struct serve_loop *d);

#endif
