/* detach.h - work in a process of its own, which slurmd neither waits for nor ends; and a bound on
 * how long we watch it.
 *
 * slurmd waits for whoever holds a prolog's output, and kills its whole process group when it ends.
 * So the worker has a session of its own, /dev/null as its three files, and no child or parent that
 * anybody would miss (two forks). It is so from its start: at the deadline, or when we are killed,
 * nothing needs to be handed over. On a machine so busy that it has no session yet at the deadline,
 * we wait for that a little longer: slurmd would end it with us.
 *
 * threads  before there are any: it forks
 */
#ifndef AGENT_SLURM_DETACH_H
#define AGENT_SLURM_DETACH_H

#include <sys/types.h>

#include "common/base/err.h"

/* From here on this process ends with 0 when time is up or it breaks, whatever it does just then: a
 * failing prolog or epilog drains the node. detach_begin() is the first thing that a verb of
 * slurmd's calls; nothing that it inherited stays open. */
void detach_begin(void);
void detach_bell(uint64_t after_ms); /* and DETACH_SLACK_MS */
enum { DETACH_SLACK_MS = 5000 };

enum detach_end { DETACH_ENDED, DETACH_GOES_ON };
/* Runs work(arg) there, and returns when it has ended, or at the monotonic instant `until_ms`. The
 * worker keeps fd. */
MUST_USE int detach(void (*work)(void *arg), void *arg, int fd, uint64_t until_ms,
                    enum detach_end *out, struct err *e);

#endif
