/* run_priv.h - the inside of a run, for run.c, land.c and downloads.c only.
 *
 * threads  the run's; others get a copy of `look`, made under its lock */
#ifndef SERVER_SYNC_RUN_PRIV_H
#define SERVER_SYNC_RUN_PRIV_H

#include <event2/event.h>
#include <stdatomic.h>

#include "common/os/lock.h"
#include "server/sync/engine.h"
#include "server/sync/history.h"
#include "server/sync/pace.h"
#include "server/sync/plan.h"

struct sync_run {
    struct run_world world;
    const struct run_job *job;
    uint64_t client; /* the name under which it takes turns with clients and other runs */
    struct run_events ev;
    struct held_claim claim; /* of a cluster; set before `begun` */
    pthread_t thread;
    struct event_base *base;
    struct message_queue *box;
    struct origin_client *origin_client;
    struct message stop_message;
    _Atomic bool stopping;
    struct pace pace;
    struct downloads *downloads; /* while they are in progress */
    struct lock lock;            /* guards `look` and the log's lines */
    struct run_report look;
    enum run_outcome when_stopped; /* what it ends as */
    struct batch *lines;           /* of the log, not committed yet */
    uint64_t line;
    uint64_t reported_ms; /* when the log was last committed */
    uint64_t stage_ms;    /* when the current stage began; under the lock */

    /* one attempt */
    struct engine_site site;
    const struct engine_ops *ops;
    struct engine *engine;
    bool answered; /* the engine's answer is here */
    int rc;
    struct err why;
    enum probe_answer probe;
    bool broken;
    struct file_filter *file_filter; /* NULL: everything is mirrored */
    struct entry_list *entry_list;
    bool keep_gone;
    bool root_reported; /* by the upstream: the root that the built tree must have */
    struct digest reported_root;
    int64_t top_mtime_ns; /* of the listed folder; 0: not known */
    char doubt[256];      /* the engine's doubt, or "" */
    uint64_t left_out, sifted;
    bool updating; /* the list shows that the upstream is being updated */
    char cursor[CURSOR_MAX];
    size_t cursor_bytes;
    struct sync_plan plan;
    struct snap head; /* seq 0: none */
    struct sync_state state;
    bool too_late;       /* the whole run has timed out */
    unsigned open_gates; /* attempts whose indexes named missing files */
};

/* writes a line of the log */
void run_say(struct sync_run *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The same, for callers that pass a run as an argument. */
void run_say_of(void *run, const char *fmt, ...) PRINTF_LIKE(2, 3);
void run_at(struct sync_run *r, enum run_stage s);
/* Runs the loop until *done, a stop, or the end of the run's time; E_CANCELLED, E_TIMEOUT. */
MUST_USE int run_turn(struct sync_run *r, const bool *done, struct err *e);

/* In a cluster, the batch fails with E_CHANGED if the claim of this run is lost. */
void run_require_claim(const struct sync_run *r, struct batch *b);
void run_outcome(struct sync_run *r, enum run_outcome o, uint64_t seq, const struct digest *root);
MUST_USE int run_put_state(struct sync_run *r, struct err *e);

/* land.c: builds, judges, and publishes or parks; and says whether the published tree has our
 * trace, or needs none. */
MUST_USE int run_land(struct sync_run *r, struct err *e);
MUST_USE int trace_is_there(struct sync_plan *p, const struct sync_conf *c, bool *yes,
                            struct err *e);
/* downloads.c: downloads the plan's whole todo list; actions become ACTION_STAGED, ACTION_KEEP or
 * ACTION_DROP. */
MUST_USE int run_download_all(struct sync_run *r, struct err *e);
/* The engine answers no more downloads: the stage ends. */
void run_downloads_broken(struct sync_run *r, int rc, const struct err *why);

#endif
