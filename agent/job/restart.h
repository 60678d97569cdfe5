/* restart.h - decides whether a failed command is restarted, and after what pause.
 *
 * Exit code 75 and death by a signal are restarted from the checkpoint. A launcher between us and
 * the ranks (mpirun, a shell) reports death by signal N as exit code 128 + N, which counts the
 * same. All other codes are final.
 *
 *
 *   limit       restarts without progress; a newer checkpoint than at the last failure is progress,
 *               and resets the count
 *   lost nodes  the first `spare` without progress are free and have no pause; each further one
 *   same step   the third consecutive failure at one step is final: another would fail too
 *   same step   the third consecutive failure at one step is final: another would fail too
 *   pause       doubles from backoff_ms to five minutes, is reset by progress, and is shortened at
 *
 * threads  plain memory, no locks
 */
#ifndef AGENT_JOB_RESTART_H
#define AGENT_JOB_RESTART_H

#include "agent/job/progress.h"
#include "common/base/err.h"

enum { RESTART_SAME_STEP = 3 };

struct restart {
    unsigned limit;
    uint64_t backoff_ms; /* before the first restart */
    uint64_t dice;       /* randomness for the pauses; never 0 */
    unsigned total;      /* restarts so far */
    unsigned count;      /* those since the last progress */
    unsigned spare;      /* lost nodes between two checkpoints that do not count; 0 */
    unsigned lost;       /* those since the last progress */
    uint64_t next_ms;    /* the next pause, before it is shortened */
    struct progress last;
    unsigned same; /* consecutive failures at last.step */
};

struct failure {
    int code; /* as a shell reports it: 128 + signal */
    bool by_signal;
    bool lost; /* not the command: a node was lost, and others continue */
    struct progress at;
};

/* False: by its code, another attempt would end in the same way. */
bool failure_may_pass(const struct failure *f);
void restart_init(struct restart *r, unsigned limit, uint64_t backoff_ms, uint64_t seed);
/* 0: restart in *wait_ms. Else the failure is final: E_INVALID by its code, E_AGAIN because no
 * restarts are left, E_INTERNAL at the same step; the sentence is in *e. */
MUST_USE int restart_judge(struct restart *r, const struct failure *f, uint64_t *wait_ms,
                           struct err *e);
/* The agent's exit status after restart_judge() returned rc: EX_SOFTWARE, which no scheduler
 * restarts, when restarts are used up or it failed at the same step; else the command's own code,
 * also if it had no restarts here. */
int restart_exit_code(const struct restart *r, const struct failure *f, int rc);

#endif
