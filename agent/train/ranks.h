/* ranks.h - which of how many processes this is, as the launcher's environment says.
 *
 * Order: torchrun's RANK and WORLD_SIZE (trainagent sets these too), Open MPI's OMPI_COMM_WORLD_*,
 * Slurm's SLURM_PROCID with SLURM_STEP_NUM_TASKS (only srun sets the latter: a batch script is not
 * a rank), else alone. Under Slurm the first host of the step and a port made of the job's id take
 * the place of MASTER_ADDR and MASTER_PORT that are not set.
 *
 * errors   E_CONFIG when the variables contradict each other
 */
#ifndef AGENT_TRAIN_RANKS_H
#define AGENT_TRAIN_RANKS_H

#include "kernels/comm.h"

#include "common/codec/hostlist.h"
#include "common/base/err.h"

enum launcher { LAUNCHER_NONE, LAUNCHER_TORCHRUN, LAUNCHER_OPENMPI, LAUNCHER_SLURM };

/* What ranks exchange sums over. */
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
    int local_world;                /* ranks on this host; 0: not said */
    const char *master_addr;        /* NULL when not said */
    char first_host[HOSTLIST_NAME]; /* of Slurm's list, to which master_addr then points */
    int master_port;
    const char *run_id;  /* "" when not said */
    char generation[64]; /* which attempt of the run this is; "" when nothing counts them */
    /* Not of the environment: */
    enum ranks_over over;
    bool ordered;        /* sums in the order of the ranks */
    uint64_t timeout_ms; /* for the group to form, once all have met */
};

/* getenv() in programs, a table in tests. */
MUST_USE int ranks_read(const char *(*env)(const char *name), struct ranks *out, struct err *e);

/* The group that these ranks make, over what the operations run on. */
MUST_USE int ranks_join(const struct ranks *r, const struct kops *k, struct comm **out,
                        struct err *e);

#endif
