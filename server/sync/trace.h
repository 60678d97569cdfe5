/* trace.h - our own file in a snapshot: when, from where and by whom it was made, in the form in which Debian's mirrors say it,
 * so that those who check mirrors see how old this one is. It is written with each new snapshot, and with no other.
 *
 * threads  the run's; blocks
 */
#ifndef SERVER_SYNC_TRACE_H
#define SERVER_SYNC_TRACE_H

#include "server/sync/build.h"
#include "server/sync/run.h"

/* *b becomes the same tree with the file in it. */
MUST_USE int trace_add(struct plan_of_run *p, const struct sync_conf *c, const struct run_report *r,
                       struct built *b, struct err *e);
/* The published tree has one, or needs none. */
MUST_USE int trace_is_there(struct plan_of_run *p, const struct sync_conf *c, bool *yes,
                            struct err *e);

#endif
