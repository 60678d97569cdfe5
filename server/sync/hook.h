/* hook.h - runs the operator's programs: before a run, and after it has published, failed or held
 * a snapshot.
 *
 * A program is started without a shell, with MIRRORD_* variables and a JSON object on its stdin.
 * Its output goes to the run's log. Neither the program nor its process group outlives its
 * time-out or a stop, and the program does not outlive a mirrord that is killed.
 *
 * threads  the one that runs the base; it blocks until the program has ended
 * errors   E_REFUSED: its exit status is not 0; E_TIMEOUT; E_CANCELLED; or it could not be started
 */
#ifndef SERVER_SYNC_HOOK_H
#define SERVER_SYNC_HOOK_H

#include <stdatomic.h>

#include "server/sync/run.h"

enum hook { HOOK_BEFORE, HOOK_PUBLISHED, HOOK_HELD, HOOK_FAILED };

struct hook_site {
    struct event_base *base;
    /* or NULL: it cannot be stopped. After setting it, wake the base */
    const _Atomic bool *stopping;
    void (*say)(void *arg, const char *fmt, ...) PRINTF_LIKE(2, 3);
    void *arg;
};

bool hook_is_set(const struct sync_conf *c, enum hook h);
/* Also 0 when the section names no such program. */
MUST_USE int hook_run(const struct hook_site *s, const struct sync_conf *c, enum hook h,
                      const char *repo, const struct run_report *r, struct err *e);
/* Checks one setting: E_CONFIG. */
MUST_USE int hook_check(const char *setting, const char *const *argv, size_t n, struct err *e);

#endif
