/* launch.h - starts, watches, signals and restarts the ranks of a command on this machine, alone
 * or with those of other nodes.
 *
 * Each rank has its own process group and torchrun's variables. The first rank that fails ends
 * the attempt: the others get SIGTERM and, after the grace, SIGKILL, with all that they started.
 * SIGTERM and SIGINT are passed on as SIGTERM (the second one kills; a notice of preemption is
 * not counted). SIGHUP, SIGUSR1 and SIGUSR2 are passed on as they are. A rank dies with its
 * agent.
 *
 * Agents of several nodes start their ranks as one world (service.h): a rank that fails ends the
 * attempt on all of them.
 *
 * A rank that ends with 71, whether it fails first or not, means that this node is not fit:
 * E_SICK. Of several nodes this one leaves.
 *
 * restart.h decides which other failures restart all ranks, how often and after what pause.
 *
 * threads  before threads are started or when they are joined: it forks, and takes over the
 *          process's signals
 */
#ifndef AGENT_JOB_LAUNCH_H
#define AGENT_JOB_LAUNCH_H

#include "agent/nodes.h"

enum { LAUNCH_GRACE_MS = 25000, LAUNCH_BACKOFF_MS = 1000 };

struct launch_params {
    char *const *argv;
    unsigned ranks;            /* on this node; 0: one for each GPU, at least one */
    const struct nodes *nodes; /* NULL: this node is alone */
    unsigned restarts;         /* without progress */
    const char *progress;      /* the folder that shows progress (progress.h); NULL: none */
    uint64_t grace_ms;         /* 0: LAUNCH_GRACE_MS, less than Slurm's KillWait */
    uint64_t backoff_ms;       /* 0: LAUNCH_BACKOFF_MS */
    /* A notice there ends the ranks as SIGTERM does (notice.h). NULL: none. */
    const char *preempt_url;
    /* Called before each restart, while nothing runs; an error ends the job. NULL: not called. */
    int (*may_restart)(void *arg, struct err *e);
    void *arg;
};

struct launch_result {
    int exit_code; /* of the first rank that failed; 128 + signal */
    unsigned restarts;
    bool stopped; /* a signal to us ended it */
    bool first;   /* rank 0 of the last attempt was on this node */
};

/* *out has how the command ended. An error: it could not be started, or must not be restarted. */
MUST_USE int launch(const struct launch_params *w, struct launch_result *out, struct err *e);

#endif
