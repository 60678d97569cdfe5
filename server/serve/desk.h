/* desk.h - what one loop has at hand: the repos in force, its table of resolved answers; and the notes on one visit. */
#ifndef SERVER_SERVE_DESK_H
#define SERVER_SERVE_DESK_H

#include "server/gate/seats.h"
#include "server/serve/hot.h"
#include "server/serve/serve.h"
#include "server/serve/traffic.h"

struct desk;
struct entrance;
struct planner;
struct quiet;
struct serve {
    struct serve_parts parts;
    struct renderings *renderings;
    struct seats sheaves; /* answers of many blobs, made or on their way */
    const struct entrance *const *doors;
    struct desk *desk; /* [loops] */
};

struct desk { /* loop->local */
    struct serve *serve;
    const struct serve_parts *parts;
    struct loop *loop;
    struct repo_set *set; /* held */
    struct hot_table *hot;
    struct planner *planner;
    unsigned flows;      /* uploads under way: they need the disk pool to end in order */
    struct quiet *quiet; /* who waits for the last of them; NULL: nobody */
    /* Of forgetting: an answer resolved before the last hot_forget() may not be added after it. */
    uint64_t generation;
};

/* The exchange's user pointer, in its arena: what is known at the end, for the log and the counters. */
struct visit {
    const struct entrance *entrance; /* by which it came in */
    struct repo *repo;               /* NULL: ours */
    enum cache_state state;
    bool cached;          /* state counts */
    struct principal who; /* released at the end */
    struct pace *pace;    /* held until the end; NULL: no limit */
    struct hot *hot;      /* held until the end */
    struct call *call;    /* held until the end */
};

void desk_flow_over(struct desk *d); /* an upload is over, its call released */

#endif
