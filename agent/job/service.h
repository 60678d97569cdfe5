/* service.h - the rendezvous of a job's agents: a process beside the agent of node 0, which says when which ranks start.
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
 * A node that is lost with --elastic never ends the job at once: the next gathering finds out whether MIN are left, and restart.h whether
 * it goes on. In OVER the service stays until all that took part have gone or are silent.
 *
 * A generation is one attempt of all nodes together. A node that comes while one runs waits for the next. A node that is silent for
 * lost_ms is lost, and what it says of an earlier generation is not heard.
 *
 * Strangers have five seconds for the greeting, and 64 of them a place; the oldest one goes for the next.
 */
#ifndef AGENT_JOB_SERVICE_H
#define AGENT_JOB_SERVICE_H

#include <sys/types.h>

#include "agent/nodes.h"

struct service_want {
    const struct nodes *nodes;
    unsigned restarts;
    uint64_t backoff_ms;
    uint64_t grace_ms;    /* how long ranks may take to end: all nodes join again after it */
    const char *progress; /* a folder, as node 0 sees it; NULL */
};

/* Forks. The process ends after the job, or with its parent. It listens a while later: a name may not be known yet. */
MUST_USE int service_start(const struct service_want *w, pid_t *pid, struct err *e);

#endif
