/* paged_fetch.h - results that an adapter makes of a document and of the documents that it leads to
 * (repo.h: DEPENDENCY_PAGES): for example a listing in pages, made into a table that a plan can
 * look into.
 *
 * The parts are ordinary objects of the cache. The result is kept in memory while it is fresh, in
 * one bounded table per loop. Runs that need the same result wait for the same paged fetch; it ends
 * when the last of them has left.
 *
 * The memory of a paged fetch counts as memory of requests (http/body_memory.h), of the client that
 * asked first. When that client may hold no more, it counts for the next client that waits. When
 * the table is full, the client with the most results loses its oldest.
 *
 * owns     a paged fetch is counted: by the table, and by every run that got its result, because
 *          results point into it
 * threads  one loop; ops->paged_fetch runs on a reader thread
 */
#ifndef SERVER_PLAN_PAGED_FETCH_H
#define SERVER_PLAN_PAGED_FETCH_H

#include "server/http/body_memory.h"
#include "server/plan/run.h"

struct paged_fetch_share;
struct planner { /* one for each loop */
    struct loop *loop;
    struct planner_deps deps;
    struct paged_fetch *by_name;
    struct list lru;                  /* finished ones, the most recently used first */
    struct paged_fetch_share *shares; /* of the table, by client */
    uint64_t bytes;
    unsigned count;
    struct body_port port;
};

/* Gives r the result of r->plan->need, now or later. refused(): its client may not hold so much
 * memory, and that is the result. */
void paged_fetch_dependency(struct plan_run *r,
                            void (*came)(struct plan_run *r, const struct result *f),
                            void (*refused)(struct plan_run *r, const struct result *f));
void paged_fetch_leave(struct plan_run *r); /* the run no longer waits */
void paged_fetch_drop(struct plan_run *r);  /* the run ends: its results are void */

/* --- the parts of a paged fetch --- */
enum { PAGED_FETCH_PARTS_MAX = 2000 };

/* The key of a part: the first part's own, then "key+1", "key+2" ...; after a query "key?query
 * +1". */
struct slice part_key(struct slice key, unsigned part, struct arena *a);
bool part_is_of(struct slice part, struct slice key);

/* The URL of the part after number `part`, in the arena; p == NULL: that was the last. E_TOOBIG:
 * the list does not end. */
MUST_USE int part_next(const struct answer *a, unsigned part, struct arena *arena,
                       struct slice *next, struct err *e);
/* Notes how long the part is fresh, and whether it is stale. */
void part_note(const struct answer *a, struct result *f);
/* For a paged fetch by HEAD: no document is made. The result is that the origin has an object of
 * this size. */
MUST_USE int part_of_head(const struct answer *a, const struct lookup *w, uint64_t now_unix_s,
                          struct result *f, struct err *e);
/* What the origin sent instead of a part, or why it could not be asked: rc, status, code, message;
 * texts in the arena. */
void part_refused(const struct answer *a, struct arena *arena, struct result *f);

#endif
