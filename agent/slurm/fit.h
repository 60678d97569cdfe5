/* fit.h - decides whether a node is so sick that its administrator wants no job on it. A prolog
 * calls it before it fetches anything.
 *
 * It makes the checks of `trainagent preflight`, except those of the mirror: an unreachable
 * mirror is not a fault of the node. Too little room on a disk or in memory does not count
 * either: jobs use it and free it, and a node that is drained for files stays drained (DISK_FREE,
 * DISK_INODES, MEMORY_LOW). The checks run in a separate process, which is killed at the
 * deadline; a missing verdict is no reason to drain.
 *
 * owns     nothing
 * threads  before there are any: it forks
 * errors   none: the log has them
 */
#ifndef AGENT_SLURM_FIT_H
#define AGENT_SLURM_FIT_H

#include "common/base/err.h"

enum { FIT_TEXT = 240 };

struct fit_ask {
    const char *conf_file; /* the node's file; NULL: the default one */
    const char *job;
    int shut;          /* a descriptor that the checking process must close; -1: none */
    uint64_t until_ms; /* on the monotonic clock */
};

/* True: drain it; *why is the reason as a line of printable bytes. */
bool fit_must_drain(const struct fit_ask *ask, char why[FIT_TEXT]);

#endif
