/* nodes.h - finds out on how many nodes a job runs, which one this agent is on, and where the
 * agents meet.
 *
 * Values that are not given come from the environment of the program that started the agent, in
 * this order:
 *
 *   torchrun's    PET_NNODES, PET_NODE_RANK, PET_RDZV_ENDPOINT or PET_MASTER_ADDR and
 *                 PET_MASTER_PORT, PET_RDZV_ID (Kubeflow sets them)
 *   Slurm's       for a step with one task per node: SLURM_STEP_NUM_NODES, SLURM_NODEID; the first
 *                 host of SLURM_STEP_NODELIST, and a port made from the job's id
 *   Open MPI's    for one process per node: OMPI_COMM_WORLD_SIZE and _RANK; the rendezvous must be
 *                 given
 *   Kubernetes'   the number of nodes must be given; JOB_COMPLETION_INDEX or the ordinal at the end
 *                 of a pod's name, and pod 0's name in the headless service
 *
 * No scheduler knows an external rendezvous: it must be given, and the job's id is then made from
 * its address.
 *
 * There is no fallback to localhost: a node that finds no other must not train alone. For the
 * same reason a given node rank or rendezvous needs a number of nodes.
 *
 * errors   E_CONFIG: something is missing or contradictory; the sentence says what to give
 */
#ifndef AGENT_NODES_H
#define AGENT_NODES_H

#include "common/base/err.h"

enum { NODES_MAX = 4096, NODES_PORT = 29400, NODES_TEXT = 256 };

struct nodes_said { /* from the command line or a job file; zero and NULL: not given */
    unsigned nodes;
    const char *node_rank;  /* a number */
    const char *rendezvous; /* "HOST:PORT" */
    const char *elastic;    /* "MIN:MAX" */
    const char *id;
    bool external;
    uint64_t join_ms;
    uint64_t lost_ms;
};

struct nodes {
    unsigned min, max; /* max 1: this node is alone, its rank is 0, and nothing below counts */
    unsigned rank;
    char host[NODES_TEXT]; /* of node 0, or of `trainagent rendezvous` */
    unsigned port;
    bool external;       /* the rendezvous is a separate one: node 0 is a node like any other */
    char id[NODES_TEXT]; /* of the job: an agent that does not know it is refused */
    uint64_t join_ms;    /* how long nodes wait for each other */
    uint64_t lost_ms;    /* how long a node may be silent; at least 1 s */
};

/* env: getenv() in programs, a table in tests. hostname: with its domain, "" if unknown. */
MUST_USE int nodes_find(const struct nodes_said *said, const char *(*env)(const char *name),
                        const char *hostname, struct nodes *out, struct err *e);

#endif
