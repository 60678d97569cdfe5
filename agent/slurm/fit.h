/* fit.h - is this node sick, so that its administrator wants no job on it? What a prolog asks
 * before it brings anything.
 *
 * Looks as `trainagent preflight` does, but for the mirror: one that is away is no sickness of the
 * node's. Nor is a disk or a memory with too little room: jobs fill them, and empty them, and a
 * node that is drained for files stays so (DISK_FREE, DISK_INODES, MEMORY_LOW). Does so in a
 * process of its own, which is killed at the deadline; no verdict is no reason to drain.
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
    const char *conf_file; /* the node's; NULL: the usual one */
    const char *job;
    int shut;          /* a descriptor that the looking process must not keep; -1: none */
    uint64_t until_ms; /* of the monotonic clock */
};

/* True: drain it, and why, in a line of printable bytes. */
bool fit_must_drain(const struct fit_ask *ask, char why[FIT_TEXT]);

#endif
