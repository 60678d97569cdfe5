/* service.h - the rendezvous of a job's agents, which says when which ranks start: a process next
 * to the agent of node 0, or a separate one (nodes->external), which outlives every node.
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
 * Node 0 is special only for the process next to its agent. An external rendezvous starts the
 * time limit of a gathering when the first agent has come, and rank 0 is at the address from
 * which the agent of the first node came.
 *
 * A node that is lost with --elastic never ends the job immediately: the next gathering finds out
 * whether MIN are left, and restart.h decides whether it goes on. In OVER the service stays until
 * all participants have left or are silent.
 *
 * A generation is one attempt of all nodes together. A node that arrives during one waits for the
 * next. A node that is silent for lost_ms is lost, and its messages about an earlier generation
 * are ignored.
 *
 * Unknown connections have five seconds for the handshake, and there are 64 places for them; a
 * new one replaces the oldest.
 */
#ifndef AGENT_JOB_SERVICE_H
#define AGENT_JOB_SERVICE_H

#include <sys/types.h>

#include "agent/nodes.h"

struct service_params {
    const struct nodes *nodes;
    unsigned restarts;
    uint64_t backoff_ms;
    uint64_t grace_ms;    /* how long ranks may take to end; all nodes join again after it */
    const char *progress; /* a folder on node 0; NULL */
};

/* In the foreground, until the job is over: *exit_code is the job's. An error: it cannot listen. */
MUST_USE int service_run(const struct service_params *w, int *exit_code, struct err *e);
/* Forks. The process ends after the job, or with its parent. It begins to listen later: a name
 * may not be known yet. */
MUST_USE int service_start(const struct service_params *w, pid_t *pid, struct err *e);

#endif
