/* service.h - the rendezvous of a job's agents, which says when which ranks start: a process beside
 * the agent of node 0, or one of its own (nodes->external), which no node's end takes along.
 *
 *              all nodes have joined; or MIN of them have, and the others
 *              did not come in time
 *   GATHERING ------------------------------------------------> RUNNING
 *       ^                                                          |
 *       |  a rank failed, or (--elastic) a node was lost: STOP     |
 *       +----------------------------------------------------------+
 *       |                                                          |
 *       +------------------------> OVER <--------------------------+
 *          too few came, node 0 was lost,      all nodes are done, the failure is final,
 *          no restarts are left (restart.h)    node 0 was lost, or any node without --elastic
 *
 * Node 0 is special for the process beside its agent alone. An external one begins to count the
 * time for a gathering when the first agent has come, and says where rank 0 is found: at the
 * address from which the agent of the first node came.
 *
 * A node that is lost with --elastic never ends the job at once: the next gathering finds out
 * whether MIN are left, and restart.h whether it goes on. In OVER the service stays until all that
 * took part have gone or are silent.
 *
 * A generation is one attempt of all nodes together. A node that comes while one runs waits for the
 * next. A node that is silent for lost_ms is lost, and what it says of an earlier generation is not
 * heard.
 *
 * Strangers have five seconds for the greeting, and 64 of them a place; the oldest one goes for the
 * next.
 */
#ifndef AGENT_JOB_SERVICE_H
#define AGENT_JOB_SERVICE_H

#include <sys/types.h>

#include "agent/nodes.h"

struct service_params {
    const struct nodes *nodes;
    unsigned restarts;
    uint64_t backoff_ms;
    uint64_t grace_ms;    /* how long ranks may take to end: all nodes join again after it */
    const char *progress; /* a folder, as node 0 sees it; NULL */
};

/* In the foreground, until the job is over: *exit_code is what it ended with. An error: it cannot
 * listen. */
MUST_USE int service_run(const struct service_params *w, int *exit_code, struct err *e);
/* Forks. The process ends after the job, or with its parent. It listens a while later: a name may
 * not be known yet. */
MUST_USE int service_start(const struct service_params *w, pid_t *pid, struct err *e);

#endif
