/* nodes.h - which of how many nodes this agent starts ranks on, and where the agents meet.
 *
 * What is not given comes from the environment of whatever started the agent, in this order:
 *
 *   torchrun's    PET_NNODES, PET_NODE_RANK, PET_RDZV_ENDPOINT or PET_MASTER_ADDR and PET_MASTER_PORT, PET_RDZV_ID (Kubeflow sets them)
 *   Slurm's       of a step with one task a node: SLURM_STEP_NUM_NODES, SLURM_NODEID; the first host of SLURM_STEP_NODELIST, and a port
 *                 made of the job's id
 *   Open MPI's    of one process a node: OMPI_COMM_WORLD_SIZE and _RANK; where they meet must be given
 *   Kubernetes'   the number of nodes must be given; JOB_COMPLETION_INDEX or the ordinal at the end of a pod's name, and pod 0's name in
 *                 the headless service
 *
 * A rendezvous that is not node 0's knows no scheduler: it must be given, and the job's id is then
 * made of its address.
 *
 * There is no fallback to localhost: a node that finds nobody must not train alone. For the same
 * reason a node rank or a rendezvous that was said needs a number of nodes.
 *
 * errors   E_CONFIG: something is missing or contradicts; what to give is in the sentence
 */
#ifndef AGENT_NODES_H
#define AGENT_NODES_H

#include "common/base/err.h"

enum { NODES_MAX = 4096, NODES_PORT = 29400, NODES_TEXT = 256 };

struct nodes_said { /* by the command line or a job file; zero and NULL: not said */
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
    char host[NODES_TEXT]; /* of node 0, or where `trainagent rendezvous` runs */
    unsigned port;
    bool external;       /* the rendezvous is that one's: node 0 is a node like any other */
    char id[NODES_TEXT]; /* of the job: who does not know it is not let in */
    uint64_t join_ms;    /* how long nodes wait for each other */
    uint64_t lost_ms;    /* how long a node may be silent; 1 s at least */
};

/* env: getenv() in programs, a table in tests. hostname: with its domain, "" when not known. */
MUST_USE int nodes_find(const struct nodes_said *said, const char *(*env)(const char *name),
                        const char *hostname, struct nodes *out, struct err *e);

#endif
