/* prefetch_priv.h - the inside of a prefetch job, for prefetch.c and prefetch_run.c alone.
 *
 * owns     struct prefetches owns its jobs and workers
 * threads  as each field says
 */
#ifndef SERVER_HUB_PREFETCH_PRIV_H
#define SERVER_HUB_PREFETCH_PRIV_H

#include "common/base/list.h"
#include "common/os/lock.h"
#include "server/hub/prefetch.h"

struct prefetch {
    struct list node;
    struct prefetches *all;
    struct arena arena;
    struct prefetch_params lookup; /* with its own copies */
    struct slice include[PREFETCH_PATTERNS], exclude[PREFETCH_PATTERNS];
    bool had_token;
    _Atomic bool stop;     /* checked by its plan runners; also set when all close */
    bool reported_to_stop; /* under all->lock, as all below */
    bool running;
    struct prefetch_view view;
    uint64_t next_ms;      /* not to be started before */
    uint64_t best_done;    /* files and bytes, over all attempts */
    bool moved;            /* this attempt made progress */
    uint64_t moved_unix_s; /* when the last attempt did */
};

/* --- prefetch_run.c: on a worker --- */
/* Makes one attempt. 0: all selected files are here; else the reason. E_CANCELLED: it was
 * stopped. */
MUST_USE int prefetch_run(struct prefetch *p, struct err *e);

/* --- prefetch.c --- */
MUST_USE int prefetch_save(struct prefetch *p, struct err *e); /* writes its row */

struct prefetches {
    const struct hub_deps *hub;
    struct lock lock; /* LOCK_HUB */
    struct cond work;
    struct list jobs; /* oldest first */
    uint64_t last_id;
    bool closing;
    pthread_t *worker;
};

#endif
