/* plan_runner.h - what a repo's adapter makes of a request that nobody has made: its plan
 * (plan/run.h), as a client's request would have it. Single flight, the origin's budget and its
 * rate hold as ever.
 *
 * Facts are kept from one question to the next: a listing that was read for one file is there for
 * all others. So a plan runner is about one repository, and does not live long.
 *
 * owns     plans live in the arena that is given, facts in the plan runner's; the repo set is the
 *          caller's, who holds it for as long
 * threads  one, which blocks; never a loop
 * errors   E_CANCELLED: *stop became true meanwhile
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

/* authorization: the caller's "Bearer ...", p == NULL: nobody's. */
void plan_runner_init(struct plan_runner *x, const struct hub_deps *hub, struct repo *r,
                      struct slice authorization, const _Atomic bool *stop);
void plan_runner_fini(struct plan_runner *x);

/* --- of a Hub that is pulled through --- */
struct plan_runner_commit { /* slices of the plan runner's */
    struct slice commit;
    struct slice id; /* canonical */
    struct manifest files;
};
/* Which commit a revision is, and what it has. The sentence says what to do: which token, say. */
MUST_USE int plan_runner_list(struct plan_runner *x, struct slice type, struct slice id,
                              struct slice rev, struct plan_runner_commit *out, struct err *e);
/* What a client that asks for the file makes the cache do. */
MUST_USE int plan_runner_lookup(struct plan_runner *x, struct slice prefix, struct slice id,
                                struct slice commit, struct slice path, struct arena *a,
                                struct lookup *out, struct err *e);

#endif
