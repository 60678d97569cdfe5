/* launch.h - the ranks of a command on this machine: started, watched, signalled, started again.
 *
 * Each rank has its own process group and torchrun's variables. The first rank that fails ends the attempt: the others
 * get SIGTERM, after the grace SIGKILL with all they started. SIGTERM and SIGINT are passed on as SIGTERM (the second one
 * kills), SIGHUP, SIGUSR1 and SIGUSR2 as they are. A rank dies with its agent.
 *
 * Exit 75 ("restart me from the checkpoint") and death by a signal start all ranks again, up to `restarts` times, with
 * a pause that doubles from backoff_ms to five minutes; other codes are final.
 *
 * threads  before threads are started or when they are joined: it forks, and takes the process' signals for itself
 */
#ifndef AGENT_JOB_LAUNCH_H
#define AGENT_JOB_LAUNCH_H

#include "common/base/err.h"

struct launch_want {
    char *const *argv;
    unsigned ranks; /* 0: one for each GPU, at least one */
    unsigned restarts;
    uint64_t grace_ms;   /* 0: 25 s, less than Slurm's KillWait */
    uint64_t backoff_ms; /* 0: 1 s */
    /* Asked before each restart, while nothing runs; what it returns, but for 0, ends it all. NULL: nobody is. */
    int (*may_restart)(void *arg, struct err *e);
    void *arg;
};

struct launch_result {
    int exit_code; /* of the first rank that failed; 128 + signal */
    unsigned restarts;
    bool stopped; /* a signal to us ended it */
};

/* rc is about starting; how the command ended is in *out. */
MUST_USE int launch(const struct launch_want *w, struct launch_result *out, struct err *e);

#endif
