/* prefetch_priv.h - a job from within, for prefetch.c and prefetch_run.c alone. */
#ifndef SERVER_HUB_PREFETCH_PRIV_H
#define SERVER_HUB_PREFETCH_PRIV_H

#include "common/base/list.h"
#include "common/os/lock.h"
#include "server/hub/prefetch.h"

struct prefetch {
    struct list node;
    struct prefetches *all;
    struct arena arena;
    struct prefetch_params lookup; /* own copies */
    struct slice include[PREFETCH_PATTERNS], exclude[PREFETCH_PATTERNS];
    bool had_token;
    _Atomic bool stop;     /* the one that its plan runners look at: also when all close */
    bool reported_to_stop; /* under all->lock, as all below */
    bool running;
    struct prefetch_view view;
    uint64_t next_ms;      /* not before */
    uint64_t best_done;    /* files and bytes, of all attempts */
    bool moved;            /* this attempt got farther */
    uint64_t moved_unix_s; /* ... the last that did */
};

/* --- prefetch_run.c: on a worker --- */
/* One attempt: 0, and all that is wanted is here; else what went wrong. E_CANCELLED: it was
 * stopped. */
MUST_USE int prefetch_run(struct prefetch *p, struct err *e);

/* --- prefetch.c --- */
MUST_USE int prefetch_save(struct prefetch *p, struct err *e); /* its row */

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
