/* sync.h - the repositories that are mirrored whole: when their runs are due, which runs are in
 * progress, and what they reported.
 *
 * A repository has one run at a time. The settings limit how many runs go on together, and how
 * many at one upstream. The state between runs is kept in rows (history.h): paused, held, the
 * last reports.
 *
 * In a cluster, each mirror has the same schedule and a run begins with a claim (cluster/claim.h),
 * so one mirror runs it. The next run is due by the last report, whichever mirror wrote it. The
 * mirror that ran last begins at once, because it remembers what the upstream's list said; the
 * others wait PREFER_S longer. A run whose mirror has gone is taken over.
 *
 * owns     holds what the settings belong to: a run keeps the settings that it began with
 * threads  any but loops: calls may read rows. The schedule has its own thread
 * errors   E_NOTFOUND: no such repository, or it is not synced; E_BUSY: a run is in progress
 */
#ifndef SERVER_SYNC_SYNC_H
#define SERVER_SYNC_SYNC_H

#include "server/repo/repo.h"
#include "server/sync/history.h"

struct sync;

struct sync *sync_open(const struct run_world *w);
/* Stops the schedule and the runs, which continue after the next start or, in a cluster, on another
 * mirror; waits up to wait_ms for their ends. A second call and NULL are fine. */
void sync_stop(struct sync *s, uint64_t wait_ms);
void sync_close(struct sync **sp); /* after sync_stop(), or instead of it */
/* Of a cluster: another mirror may have changed what the schedule goes by. Does not block. */
void sync_rows_changed(struct sync *s);

struct sync_repo_settings { /* of one synced repository */
    const struct repo *repo;
    const struct repo_conf *conf;
    void *held; /* conf stays until release(held), on any thread */
    void (*release)(void *held);
};
/* New settings; runs in progress end with the old ones. Takes `held`, also when it fails. */
MUST_USE int sync_set(struct sync *s, const struct sync_repo_settings *repos, size_t count,
                      unsigned together, struct err *e);
/* Checks a section: E_CONFIG with a sentence. */
MUST_USE int sync_check(const struct sync_conf *c, const struct origin_settings *origin,
                        struct err *e);

MUST_USE int sync_start(struct sync *s, struct slice repo, bool dry, bool force, uint64_t *id,
                        struct err *e);
/* Returns when that run is over, immediately if it is not in progress, or after the given ms. */
void sync_await(struct sync *s, struct slice repo, uint64_t id, uint64_t ms);
/* Its run, if any, on whichever mirror of a cluster. */
MUST_USE int sync_cancel(struct sync *s, struct slice repo, struct err *e);
MUST_USE int sync_pause(struct sync *s, struct slice repo, bool pause, struct err *e);
/* Publishes the snapshot that is held. */
MUST_USE int sync_approve(struct sync *s, struct slice repo, struct snap *out, struct err *e);

struct sync_view {
    char name[64];
    char upstream[256];
    char schedule[128];            /* or "" */
    bool running, paused, waiting; /* waiting: due, but others are first */
    bool elsewhere;                /* running, on another mirror of the cluster: last.mirror */
    uint64_t next_unix_s;          /* 0: none is planned */
    uint64_t held_seq, failures, last_ok_unix_s;
    uint64_t runs[RUN_INTERRUPTED + 1];         /* since the start, by outcome */
    uint64_t wire_bytes;                        /* likewise, of finished runs, as are: */
    uint64_t fresh, changed, gone, kept, files; /* entries; files that were fetched */
    uint64_t attempts_failed, took_s;           /* took_s: of the last one */
    bool ever;                                  /* `last` counts */
    struct run_report last;                     /* or the one under way */
    struct snap head;                           /* seq 0: none */
    bool hold; /* it was selected by hand: new snapshots wait for approval */
};
MUST_USE int sync_look(struct sync *s, struct slice repo, struct sync_view *out, struct err *e);
/* The state of a second ago, from memory: for loops. At most `room` of them. */
size_t sync_glance(struct sync *s, struct sync_view *out, size_t room);
/* Every synced repo, by name. */
MUST_USE int sync_each(struct sync *s, int (*each)(void *arg, const struct sync_view *v), void *arg,
                       struct err *e);

#endif
