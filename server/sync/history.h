/* history.h - the rows of runs: their reports, their logs, and a repository's state between runs.
 *
 * threads  any; blocks
 * errors   E_NOTFOUND; E_CORRUPT
 */
#ifndef SERVER_SYNC_HISTORY_H
#define SERVER_SYNC_HISTORY_H

#include "server/store/store.h"
#include "server/sync/run.h"

enum { HISTORY_RUNS = 100, HISTORY_LINES = 10000, CURSOR_MAX = 8 + 4096 };

/* Adds the row of a report. */
void history_add(struct batch *b, struct slice repo, const struct run_report *r);
/* The batch fails with E_CHANGED if there is a run of this id already. */
void history_require_new(struct batch *b, struct slice repo, uint64_t id);
/* Reports: newest first. each() returns nonzero to stop. */
MUST_USE int history_put(struct store *s, struct slice repo, const struct run_report *r,
                         struct err *e);
MUST_USE int history_list(struct store *s, struct slice repo,
                          int (*each)(void *arg, const struct run_report *r), void *arg,
                          struct err *e);
MUST_USE int history_get(struct store *s, struct slice repo, uint64_t id, struct run_report *out,
                         struct err *e); /* id 0: the latest */
/* Removes all but the last HISTORY_RUNS. */
MUST_USE int history_trim(struct store *s, struct slice repo, struct err *e);

/* A line of a run's log. */
void history_line(struct batch *b, struct slice repo, uint64_t id, uint64_t line, uint64_t unix_ms,
                  struct slice text);
MUST_USE int history_lines(struct store *s, struct slice repo, uint64_t id,
                           int (*each)(void *arg, uint64_t unix_ms, struct slice text), void *arg,
                           struct err *e);

struct sync_state {    /* of a repo */
    bool paused;       /* set only by people: sync_state_put() does not write it */
    uint64_t held_seq; /* a parked snapshot that waits for approval; 0: none */
    struct digest held_root;
    uint64_t failures;       /* consecutive */
    uint64_t last_ok_unix_s; /* published or unchanged */
    uint64_t cursor_seq;     /* the head that the cursor belongs to */
    char cursor[CURSOR_MAX];
    size_t cursor_bytes;
};
/* All zero for a repository without a row. */
MUST_USE int sync_state_get(struct store *s, struct slice repo, struct sync_state *out,
                            struct err *e);
void sync_state_put(struct batch *b, struct slice repo, const struct sync_state *st);
/* In a separate row, so that a run in progress cannot overwrite it. */
void sync_state_pause(struct batch *b, struct slice repo, bool pause);

#endif
