/* paged_fetch.h - results that an adapter makes of a document and those that it leads to (repo.h:
 * DEPENDENCY_PAGES): a listing in pages, say, made into a table that a plan can look into.
 *
 * The parts are objects of the cache like any other; what is made of them is kept in memory,
 * bounded, one table a loop, for as long as they are fresh. Runs that need the same wait for the
 * same gathering; when the last of them has left, it ends.
 *
 * What a gathering holds counts as the memory of requests (http/body_memory.h), of the client that
 * asked first; when that one may hold no more, of the next that waits for it. The table is full:
 * the client that has most of it gives its oldest.
 *
 * owns     a gathering is counted: by the table, and by every run that was given it, since results
 *          point into it
 * threads  one loop; ops->gather runs on a reader thread
 */
#ifndef SERVER_PLAN_PAGED_FETCH_H
#define SERVER_PLAN_PAGED_FETCH_H

#include "server/http/body_memory.h"
#include "server/plan/run.h"

struct paged_fetch_share;
struct planner { /* one loop's */
    struct loop *loop;
    struct planner_deps deps;
    struct paged_fetch *by_name;
    struct list lru;                  /* ready ones, used last in front */
    struct paged_fetch_share *shares; /* of it, by client */
    uint64_t bytes;
    unsigned count;
    struct body_port port;
};

/* Gives r the result of r->plan->need, now or later; refused(): its client may not hold so much
 * memory, and that is the result. */
void paged_fetch_dependency(struct plan_run *r,
                            void (*came)(struct plan_run *r, const struct result *f),
                            void (*refused)(struct plan_run *r, const struct result *f));
void paged_fetch_leave(struct plan_run *r); /* it waits no more */
void paged_fetch_drop(struct plan_run *r);  /* the run ends: its results are void */

/* --- of a gathering's parts --- */
enum { PAGED_FETCH_PARTS_MAX = 2000 };

/* The key of a part: the gathering's own, "key+1", "key+2" ...; "key?query +1" behind a query. */
struct slice part_key(struct slice key, unsigned part, struct arena *a);
bool part_is_of(struct slice part, struct slice key);

/* Where the part behind number `part` is, in the arena; p == NULL: that was the last. E_TOOBIG: the
 * list never ends. */
MUST_USE int part_next(const struct answer *a, unsigned part, struct arena *arena,
                       struct slice *next, struct err *e);
/* How long what a part says is good, and whether it is old. */
void part_note(const struct answer *a, struct result *f);
/* Of a gathering that asks by HEAD: nothing is made, that the origin shows an object of this size
 * is the result. */
MUST_USE int part_of_head(const struct answer *a, const struct lookup *w, uint64_t now_unix_s,
                          struct result *f, struct err *e);
/* What the origin said instead of a part, or what became of asking it: rc, status, code, message;
 * texts in the arena. */
void part_refused(const struct answer *a, struct arena *arena, struct result *f);

#endif
