/* run.h - one run of one repo: list, plan, fetch, verify, gate, publish (docs/architecture.md), on
 * a thread of its own.
 *
 * A run publishes all or nothing. Until its last commit the old snapshot is served whole; what it
 * has fetched by then is in TABLE_STAGE, so whatever ends it, the next one goes on from there.
 *
 * owns     run_close() waits for the thread; a job is copied
 * threads  run_open, run_stop, run_look: any; run_close: once
 */
#ifndef SERVER_SYNC_RUN_H
#define SERVER_SYNC_RUN_H

#include "common/os/pool.h"
#include "server/fetch/origin.h"
#include "server/repo/sync_conf.h"
#include "server/store/tree.h"

struct run_world { /* what all runs share */
    struct store *store;
    struct pool *disk;
    /* The head of this repo moved: resolved answers are void. */
    void (*on_published)(void *arg, struct slice repo);
    void (*collect)(void *arg); /* snapshots went: what only they had may go too. Blocks */
    int (*make_room)(void *arg, uint64_t need_bytes); /* E_NOSPACE: all that is there must stay */
    void *arg;
};

struct run_upstream {
    const char *url;
    const struct origin *origin; /* of http, https and s3; or NULL */
};

struct run_job { /* borrowed until run_close() */
    const char *repo;
    const struct sync_conf *conf;
    const struct run_upstream *upstream;
    size_t upstreams;
    const char *secret;
    const char *ca_file, *proxy, *no_proxy;
    uint32_t connect_ms, stall_ms;
    bool dry;   /* list and plan, no more */
    bool force; /* no probe */
};

/* Rows hold the numbers: new ones go to the end. */
enum run_stage {
    RUN_PROBE,
    RUN_LIST,
    RUN_PLAN,
    RUN_FETCH,
    RUN_VERIFY,
    RUN_PUBLISH,
    RUN_WAIT,
    RUN_GATE,
    RUN_HOOK,
};
enum run_outcome {
    RUN_RUNNING,
    RUN_PUBLISHED,
    RUN_UNCHANGED,
    RUN_HELD,
    RUN_FAILED,
    RUN_STOPPED,
    RUN_PLANNED,     /* a dry one */
    RUN_INTERRUPTED, /* the daemon ended first */
};

struct run_report {
    uint64_t id; /* 1, 2, ... of the repo */
    enum run_outcome outcome;
    enum run_stage stage;
    bool dry;
    uint64_t started_unix_s, ended_unix_s;
    char upstream[256];
    char why[248]; /* of what failed or is held */
    uint64_t listed, fresh, changed, gone, same,
        kept; /* entries; kept: vanished or unreadable, so the old one stays */
    uint64_t files_todo, files_done, bytes_todo, bytes_done; /* of the fetch */
    uint64_t wire_bytes;                                     /* all that came, lists included */
    uint64_t reused;      /* files whose bytes were here already */
    uint64_t saved_bytes; /* those, and what was copied from former versions */
    uint64_t attempts;
    struct digest root; /* of what was published or is held */
    uint64_t seq;
    uint64_t memory_bytes; /* of the list */
    /* of one under way */
    uint64_t fetching_ms;     /* since its fetch began */
    uint64_t tries;           /* as many attempts it makes */
    uint64_t next_try_unix_s; /* of RUN_WAIT, else 0 */
};

struct sync_run;
/* `ended` is called on the run's thread, as the last thing. E_BUSY: the system has no thread for
 * it. */
MUST_USE int run_open(const struct run_world *w, const struct run_job *job, uint64_t id,
                      void (*ended)(void *arg, struct sync_run *r), void *arg,
                      struct sync_run **out, struct err *e);
void run_stop(struct sync_run *r);
void run_look(struct sync_run *r, struct run_report *out);
bool run_is_busy(
    struct sync_run *r); /* it takes an upstream's time, not only an operator's program */
bool run_is_over(struct sync_run *r); /* its outcome is told, and no operator's program runs */
void run_close(struct sync_run **rp);

const char *run_stage_name(enum run_stage s);
const char *run_outcome_name(enum run_outcome o);
/* Of what is left of the repo's files, nothing is wanted any more. */
void run_drop_left(struct store *s, struct slice repo);

#endif
