/* ranks.h - finds out from the launcher's environment how many ranks there are and which one this
 * process is.
 *
 * Order: torchrun's RANK and WORLD_SIZE (trainagent sets these too), Open MPI's
 * OMPI_COMM_WORLD_*, Slurm's SLURM_PROCID with SLURM_STEP_NUM_TASKS (only srun sets the latter: a
 * batch script is not a rank), else a single rank. Under Slurm the first host of the step and a
 * port made from the job's id replace an unset MASTER_ADDR and MASTER_PORT.
 *
 * errors   E_CONFIG when the variables contradict each other
 */
#ifndef AGENT_TRAIN_RANKS_H
#define AGENT_TRAIN_RANKS_H

#include "kernels/comm.h"

#include "common/codec/hostlist.h"
#include "common/base/err.h"

enum launcher { LAUNCHER_NONE, LAUNCHER_TORCHRUN, LAUNCHER_OPENMPI, LAUNCHER_SLURM };

/* The library over which ranks exchange sums. */
enum ranks_over {
    OVER_AUTO, /* NCCL between GPUs, MPI between CPUs */
    OVER_NCCL,
    OVER_MPI,
};

struct ranks {
    enum launcher launcher;
    int rank;
    int world;
    int local_rank;
    int local_world;                /* ranks on this host; 0: not given */
    const char *master_addr;        /* NULL when not given */
    char first_host[HOSTLIST_NAME]; /* from Slurm's list; then master_addr points to it */
    int master_port;
    const char *run_id;  /* "" when not given */
    char generation[64]; /* which attempt of the run this is; "" if attempts are not counted */
    /* Not from the environment: */
    enum ranks_over over;
    bool ordered;        /* sums in the order of the ranks */
    uint64_t timeout_ms; /* for the group to form, after all have met */
};

/* getenv() in programs, a table in tests. */
MUST_USE int ranks_read(const char *(*env)(const char *name), struct ranks *out, struct err *e);

/* Forms the group of these ranks, with the library that suits the operations' device. */
MUST_USE int ranks_join(const struct ranks *r, const struct kops *k, struct comm **out,
                        struct err *e);

#endif
