/* sync_priv.h - the repos that are synced from within, for sync.c, schedule.c and view.c alone.
 *
 * threads  all under sync.lock, but what seen_lock guards
 */
#ifndef SERVER_SYNC_SYNC_PRIV_H
#define SERVER_SYNC_SYNC_PRIV_H

#include "common/os/lock.h"
#include "server/sync/setup.h"
#include "server/sync/sync.h"

struct task { /* one repo */
    struct list node;
    struct sync *sync;
    char *name;
    struct setup *setup;   /* NULL: not synced any more, goes when its run has ended */
    struct setup *running; /* the run's */
    struct run_job job;    /* the run's: setup's with its own flags */
    struct run *run;       /* or NULL */
    bool ended;            /* run_close() is due */
    bool due;
    uint64_t next_unix_s; /* 0: never */
    uint64_t last_id;
    struct run_report
        last; /* of this life: the disk may have been too full for its row. id 0: none */
    uint64_t runs[RUN_INTERRUPTED + 1];
    uint64_t wire_bytes;
    uint64_t fresh, changed, gone, kept, files, attempts_failed, took_s;
};

struct sync {
    struct run_world world;
    struct lock lock;
    struct cond news;
    struct list tasks; /* by name */
    unsigned together;
    bool stop;
    pthread_t thread;
    struct lock seen_lock; /* guards what follows: loops take it, and nobody blocks under it */
    struct sync_view *seen;
    size_t seen_count;
};

/* --- schedule.c --- */

void *schedule_main(void *sync); /* its thread */
/* last_unix_s: when the last run began, 0: it never ran. What was missed while we were away is due at once. */
void task_plan_next(struct task *t, uint64_t last_unix_s, uint64_t now_unix_s);
MUST_USE int task_launch(struct task *t, bool dry, bool force, struct err *e); /* of run_open() */
void task_free(struct task *t);

/* --- sync.c --- */

MUST_USE int sync_need(struct sync *s, struct slice repo, struct task **out, struct err *e);

/* --- view.c --- */

void sync_refresh(struct sync *s); /* what sync_glance() tells */

#endif
