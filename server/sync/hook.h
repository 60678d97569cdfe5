/* hook.h - the operator's programs that a run starts: before it, and when it has published, failed,
 * or holds a snapshot.
 *
 * A program is started without a shell, with MIRRORD_* variables and a JSON object on its stdin;
 * what it writes goes into the run's log. It never outlives its time-out, nor a stop, and neither
 * does what it leaves in its process group; nor does the program itself outlive a mirrord that is
 * killed.
 *
 * threads  the one that turns the base; it does until the program has ended
 * errors   E_REFUSED: it ended with something else than 0; E_TIMEOUT; E_CANCELLED; or it could not
 *          be started
 */
#ifndef SERVER_SYNC_HOOK_H
#define SERVER_SYNC_HOOK_H

#include <stdatomic.h>

#include "server/sync/run.h"

enum hook { HOOK_BEFORE, HOOK_PUBLISHED, HOOK_HELD, HOOK_FAILED };

struct hook_site {
    struct event_base *base;
    const _Atomic bool *stopping; /* or NULL: nobody stops it. Who sets it wakes the base */
    void (*say)(void *arg, const char *fmt, ...) PRINTF_LIKE(2, 3);
    void *arg;
};

bool hook_is_set(const struct sync_conf *c, enum hook h);
/* 0 also when the section names no such program. */
MUST_USE int hook_run(const struct hook_site *s, const struct sync_conf *c, enum hook h,
                      const char *repo, const struct run_report *r, struct err *e);
/* Judges one setting: E_CONFIG. */
MUST_USE int hook_check(const char *setting, const char *const *argv, size_t n, struct err *e);

#endif
