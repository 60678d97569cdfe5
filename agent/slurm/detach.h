/* detach.h - runs work in a process for which slurmd neither waits nor ends it; and limits how
 * long we watch it.
 *
 * slurmd waits for every process that holds a prolog's output, and kills the prolog's whole
 * process group when the prolog ends. So the worker has its own session, /dev/null as its three
 * files, and no parent that waits for it (two forks). It is detached from its start: at the
 * deadline, or when we are killed, nothing needs to be handed over. If the machine is so busy
 * that the worker has no session yet at the deadline, we wait a little longer: slurmd would end
 * it with us.
 *
 * threads  before there are any: it forks
 */
#ifndef AGENT_SLURM_DETACH_H
#define AGENT_SLURM_DETACH_H

#include <sys/types.h>

#include "common/base/err.h"

/* From here on this process ends with 0 when the time is up or it breaks, whatever it is doing: a
 * failing prolog or epilog drains the node. detach_begin() is the first call of a verb that
 * slurmd runs; no inherited descriptor stays open. */
void detach_begin(void);
void detach_bell(uint64_t after_ms); /* and DETACH_SLACK_MS */
enum { DETACH_SLACK_MS = 5000 };

enum detach_end { DETACH_ENDED, DETACH_GOES_ON };
/* Runs work(arg) in the worker, and returns when it has ended, or at the monotonic instant
 * `until_ms`. The worker keeps fd. */
MUST_USE int detach(void (*work)(void *arg), void *arg, int fd, uint64_t until_ms,
                    enum detach_end *out, struct err *e);

#endif
