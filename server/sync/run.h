/* run.h - one run of one repository: list, plan, fetch, verify, judge, publish
 * (docs/architecture.md), on its own thread.
 *
 * A run publishes all or nothing. Until its last commit the old snapshot is served whole. What it
 * has fetched by then is in TABLE_STAGE, so the next run continues from there, whatever ended
 * this one.
 *
 * owns     run_close() waits for the thread; a job is copied
 * threads  run_open, run_stop, run_look: any; run_close: once
 */
#ifndef SERVER_SYNC_RUN_H
#define SERVER_SYNC_RUN_H

#include "common/os/pool.h"
#include "server/cluster/claim.h"
#include "server/fetch/origin.h"
#include "server/repo/sync_conf.h"
#include "server/store/tree.h"

struct run_world { /* shared by all runs */
    struct store *store;
    /* Of a cluster: a repository is synced by one mirror at a time. NULL: this mirror is alone. */
    struct claims *claims;
    struct pool *disk;
    /* The head of this repository moved: cached responses are invalid. */
    void (*on_published)(void *arg, struct slice repo);
    /* snapshots were removed: collect blobs that only they referred to. Blocks */
    void (*collect)(void *arg);
    int (*make_room)(void *arg, uint64_t need_bytes); /* E_NOSPACE: nothing can be removed */
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
    bool dry;   /* list and plan only */
    bool force; /* skips the probe */
};

/* Rows hold these numbers: add new ones at the end. */
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
    RUN_PLANNED,     /* a dry run */
    RUN_INTERRUPTED, /* the daemon was stopped first */
};

struct run_report {
    uint64_t id; /* 1, 2, ... for each repository */
    enum run_outcome outcome;
    enum run_stage stage;
    bool dry;
    uint64_t started_unix_s, ended_unix_s;
    char upstream[256];
    char why[248];                    /* why it failed or is held */
    char mirror[MEMBER_ADDRESS_ROOM]; /* of a cluster: which one ran it; else "" */
    uint64_t listed, fresh, changed, gone, same,
        kept; /* entries; kept: vanished or unreadable, so the old entry stays */
    uint64_t files_todo, files_done, bytes_todo, bytes_done; /* of the fetch */
    /* everything received, lists included */
    uint64_t wire_bytes;
    uint64_t reused;      /* files whose bytes were already here */
    uint64_t saved_bytes; /* those, and what was copied from former versions */
    uint64_t attempts;
    struct digest root; /* of the published or held tree */
    uint64_t seq;
    uint64_t memory_bytes; /* of the list */
    /* of one in progress */
    uint64_t fetching_ms;     /* since its fetch began */
    uint64_t tries;           /* the number of attempts it makes */
    uint64_t next_try_unix_s; /* of RUN_WAIT, else 0 */
};

struct sync_run;

/* Both are called on the run's thread. */
struct run_events {
    /* The run has begun, and has its number. It has not, if why != NULL: another mirror has claimed
     * the repository (E_BUSY), or the claim could not be committed. */
    void (*begun)(void *arg, struct sync_run *r, const struct err *why);
    void (*ended)(void *arg, struct sync_run *r); /* last */
    void *arg;
};
/* id: where the mirror is alone. In a cluster the run takes the next number itself. E_BUSY: the
 * system has no thread for it. */
MUST_USE int run_open(const struct run_world *w, const struct run_job *job, uint64_t id,
                      const struct run_events *ev, struct sync_run **out, struct err *e);
void run_stop(struct sync_run *r);
/* As run_stop(), because the daemon ends: in a cluster, another mirror goes on at once. */
void run_interrupt(struct sync_run *r);
/* Whether another mirror, or a person, has taken the claim from this run, which has begun. */
MUST_USE bool run_has_lost_claim(struct sync_run *r);
void run_look(struct sync_run *r, struct run_report *out);
bool run_is_busy(
    struct sync_run *r); /* it uses an upstream, and does not merely run an operator's program */
/* its outcome is known, and no operator's program is running */
bool run_is_over(struct sync_run *r);
void run_close(struct sync_run **rp);

const char *run_stage_name(enum run_stage s);
const char *run_outcome_name(enum run_outcome o);
/* Removes the remaining partial files of the repository: none is needed any more. */
void run_drop_left(struct store *s, struct slice repo);

#endif
