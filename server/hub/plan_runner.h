/* plan_runner.h - makes the plan that a client's request would get (plan/run.h), without a client.
 *
 * Single flight, the origin's budget and its rate apply as usual. Results are kept from one
 * question to the next: a listing that was read for one file serves all others. So a plan runner is
 * for one repository and does not live long.
 *
 * owns     plans are in the given arena, results in the plan runner's; the caller holds the repo
 *          set as long
 * threads  one, which blocks; never a loop
 * errors   E_CANCELLED: *stop became true
 */
#ifndef SERVER_HUB_PLAN_RUNNER_H
#define SERVER_HUB_PLAN_RUNNER_H

#include "server/hub/deps.h"
#include "server/plan/run.h"
#include "server/repo/hf/manifest.h"

struct plan_runner {
    const struct hub_deps *hub;
    const struct repo *r;
    const _Atomic bool *stop;
    uint64_t unix_s; /* when it began */
    struct arena arena;
    struct plan_run run;
    struct http_field authorization;
    size_t nfields;
};

/* authorization: the caller's "Bearer ..."; p == NULL: anonymous. */
void plan_runner_init(struct plan_runner *x, const struct hub_deps *hub, struct repo *r,
                      struct slice authorization, const _Atomic bool *stop);
void plan_runner_fini(struct plan_runner *x);

/* --- for a Hub that is pulled through --- */
struct plan_runner_commit { /* slices belong to the plan runner */
    struct slice commit;
    struct slice id; /* canonical */
    struct manifest files;
};
/* The commit of a revision, and its files. The error's sentence says what to do, for example which
 * token is needed. */
MUST_USE int plan_runner_list(struct plan_runner *x, struct slice type, struct slice id,
                              struct slice rev, struct plan_runner_commit *out, struct err *e);
/* The lookup that a client's request for the file would cause. */
MUST_USE int plan_runner_lookup(struct plan_runner *x, struct slice prefix, struct slice id,
                                struct slice commit, struct slice path, struct arena *a,
                                struct lookup *out, struct err *e);

#endif
