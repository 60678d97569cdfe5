/* sync.h - the repos that are mirrored whole: when their runs are due, which are under way, what
 * they told.
 *
 * A repo has one run at a time; several together, and several at one upstream, as the settings
 * allow. What is remembered between runs stands in rows (history.h): paused, held, the last
 * reports.
 *
 * owns     what settings are part of is held: a run keeps those it began with
 * threads  any but loops: calls may read rows. The schedule has a thread of its own
 * errors   E_NOTFOUND: no such repo, or it is not synced; E_BUSY: a run is under way
 */
#ifndef SERVER_SYNC_SYNC_H
#define SERVER_SYNC_SYNC_H

#include "server/repo/repo.h"
#include "server/sync/history.h"

struct sync;

struct sync *sync_open(const struct run_world *w);
void sync_close(struct sync **sp); /* stops runs; they go on after the next start */

struct sync_repo_settings { /* of one synced repo */
    const struct repo *repo;
    const struct repo_conf *conf;
    void *held; /* conf stays until release(held), on any thread */
    void (*release)(void *held);
};
/* From now on these; runs under way end as they began. Takes what is held, also when it fails. */
MUST_USE int sync_set(struct sync *s, const struct sync_repo_settings *repos, size_t count,
                      unsigned together, struct err *e);
/* Judges a section: E_CONFIG with a sentence. */
MUST_USE int sync_check(const struct sync_conf *c, const struct origin_settings *origin,
                        struct err *e);

MUST_USE int sync_start(struct sync *s, struct slice repo, bool dry, bool force, uint64_t *id,
                        struct err *e);
/* Returns when that run is over, at once when it is not the one under way, and after so many ms. */
void sync_await(struct sync *s, struct slice repo, uint64_t id, uint64_t ms);
MUST_USE int sync_cancel(struct sync *s, struct slice repo, struct err *e); /* its run, if any */
MUST_USE int sync_pause(struct sync *s, struct slice repo, bool pause, struct err *e);
/* Publishes the snapshot that is held. */
MUST_USE int sync_approve(struct sync *s, struct slice repo, struct snap *out, struct err *e);

struct sync_view {
    char name[64];
    char upstream[256];
    char schedule[128];            /* or "" */
    bool running, paused, waiting; /* waiting: due, others come first */
    uint64_t next_unix_s;          /* 0: none is planned */
    uint64_t held_seq, failures, last_ok_unix_s;
    uint64_t runs[RUN_INTERRUPTED + 1];         /* since the start, by outcome */
    uint64_t wire_bytes;                        /* likewise, of runs that have ended, as are: */
    uint64_t fresh, changed, gone, kept, files; /* entries; files that were fetched */
    uint64_t attempts_failed, took_s;           /* took_s: of the last one */
    bool ever;                                  /* `last` counts */
    struct run_report last;                     /* or the one under way */
    struct snap head;                           /* seq 0: none */
    bool hold; /* it was chosen by hand: what runs bring waits for a word */
};
MUST_USE int sync_look(struct sync *s, struct slice repo, struct sync_view *out, struct err *e);
/* As it was a second ago, from memory: for loops. At most `room` of them. */
size_t sync_glance(struct sync *s, struct sync_view *out, size_t room);
/* Every synced repo, by name. */
MUST_USE int sync_each(struct sync *s, int (*each)(void *arg, const struct sync_view *v), void *arg,
                       struct err *e);

#endif
