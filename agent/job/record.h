/* record.h - the last state of a job: one small JSON file in its folder, for `trainagent status`
 * and for scripts. */
#ifndef AGENT_JOB_RECORD_H
#define AGENT_JOB_RECORD_H

#include "agent/agent.h"

struct record {
    const char *job;
    const char *phase; /* "preflight", "pull", "run", "publish" */
    int rc;            /* 0 or E_* */
    const char *why;   /* of a failure; "" */
    int exit_code;     /* of the command */
    unsigned restarts;
    uint64_t began_unix_s;
};

/* Never fails the job: a failed write is logged. */
void record_write(const char *folder, const struct record *r);
void records_print(const struct agent *a); /* a line a job; with --json a member "jobs" */

#endif
