#include "agent/train/ranks.h"

#include <stdio.h>
#include <string.h>

#include "agent/train/rendezvous.h"
#include "common/base/slice.h"

enum {
    RANKS_MAX = 1 << 16,
    RENDEZVOUS_MS = 120000,
    GROUP_MS = 1800000,
    SLURM_PORT = 29400,
    SLURM_PORTS = 1024
};

static const struct names {
    enum launcher launcher;
    const char *rank, *world, *local, *local_world;
} table[] = {
    {LAUNCHER_TORCHRUN, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {LAUNCHER_OPENMPI, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {LAUNCHER_SLURM, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
     "SLURM_NTASKS_PER_NODE"},
};

static int read_count(const char *(*env)(const char *), const char *name, int otherwise, int *out,
                      struct err *e)
{
    const char *text = env(name);
    uint64_t v;

    *out = otherwise;
    if (text == NULL || text[0] == '\0') {
        return 0;
    }
    if (!slice_u64(slice_str(text), &v) || v > RANKS_MAX) {
        return err_set(e, E_CONFIG, "%s=%.40s is not a number", name, text);
    }
    *out = (int)v;
    return 0;
}

/* trainagent takes Open MPI's variables away from what it launches. Where both are there, its rank
 * has started mpirun, and the agent's variables are those of mpirun itself. */
static bool hides_openmpi(const char *(*env)(const char *), enum launcher launcher)
{
    return launcher == LAUNCHER_TORCHRUN && env("TRAINAGENT_GENERATION") != NULL &&
           env("OMPI_COMM_WORLD_RANK") != NULL;
}

/* trainagent counts the attempts of all nodes together, Slurm how often it has put the job in line
 * again. torchrun's count is none of these: an agent that came later has another one than its
 * peers. */
static void read_generation(const char *(*env)(const char *), struct ranks *out)
{
    const char *generation = env("TRAINAGENT_GENERATION");
    const char *step = env("SLURM_STEP_ID"), *again = env("SLURM_RESTART_COUNT");

    if (generation != NULL && out->launcher == LAUNCHER_TORCHRUN) {
        snprintf(out->generation, sizeof out->generation, "%.60s", generation);
    } else if (out->launcher == LAUNCHER_SLURM) {
        snprintf(out->generation, sizeof out->generation, "%.30s.%.30s", step != NULL ? step : "",
                 again != NULL ? again : "0");
    }
}

/* The same on all ranks, and never localhost. */
static int read_slurm_place(const char *(*env)(const char *), struct ranks *out, struct err *e)
{
    const char *list = env("SLURM_STEP_NODELIST");

    list = list != NULL ? list : env("SLURM_JOB_NODELIST");
    if (out->launcher != LAUNCHER_SLURM || out->master_addr != NULL || list == NULL) {
        return 0;
    }
    if (!hostlist_first(slice_str(list), out->first_host)) {
        return err_set(e, E_CONFIG,
                       "Slurm's node list \"%.80s\" has no first host; set MASTER_ADDR", list);
    }
    out->master_addr = out->first_host;
    if (env("MASTER_PORT") == NULL) {
        out->master_port = SLURM_PORT + (int)(slice_hash(slice_str(out->run_id)) % SLURM_PORTS);
    }
    return 0;
}

int ranks_read(const char *(*env)(const char *), struct ranks *out, struct err *e)
{
    const char *addr, *id;
    int rc;

    *out = (struct ranks){.world = 1, .run_id = "", .timeout_ms = GROUP_MS};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const struct names *n = &table[i];

        if (env(n->rank) == NULL || env(n->world) == NULL || hides_openmpi(env, n->launcher)) {
            continue;
        }
        out->launcher = n->launcher;
        rc = read_count(env, n->rank, 0, &out->rank, e);
        rc = rc != 0 ? rc : read_count(env, n->world, 1, &out->world, e);
        rc = rc != 0 ? rc : read_count(env, n->local, 0, &out->local_rank, e);
        rc = rc != 0 ? rc : read_count(env, n->local_world, 0, &out->local_world, e);
        if (rc == 0 && out->rank >= out->world) {
            rc = err_set(e, E_CONFIG, "%s=%d is not less than %s=%d", n->rank, out->rank, n->world,
                         out->world);
        }
        if (rc != 0) {
            return rc;
        }
        break;
    }
    addr = env("MASTER_ADDR");
    id = env("TORCHELASTIC_RUN_ID");
    id = id != NULL ? id : env("SLURM_JOB_ID");
    out->master_addr = addr;
    out->run_id = id != NULL ? id : "";
    read_generation(env, out);
    rc = read_count(env, "MASTER_PORT", 29500, &out->master_port, e);
    return rc != 0 ? rc : read_slurm_place(env, out, e);
}

static int join_nccl(const struct ranks *r, struct comm **out, struct err *e)
{
    uint8_t id[COMM_ID_BYTES];
    int rc = 0;

    if (r->master_addr == NULL) {
        return err_set(e, E_CONFIG,
                       "%d ranks on GPUs need MASTER_ADDR; set it to the host of rank 0", r->world);
    }
    if (r->rank == 0) {
        rc = comm_make_nccl_id(id, e);
    }
    if (rc == 0) {
        /* The launcher's own store may listen on MASTER_PORT itself. */
        const struct rendezvous where = {.host = r->master_addr,
                                         .port = r->master_port + 1,
                                         .rank = r->rank,
                                         .world = r->world,
                                         .run_id = r->run_id,
                                         .generation = r->generation,
                                         .timeout_ms = RENDEZVOUS_MS};
        rc = rendezvous_share(&where, id, sizeof id, e);
    }
    return rc != 0 ? rc : comm_open_nccl(id, r->rank, r->world, r->timeout_ms, out, e);
}

int ranks_join(const struct ranks *r, const struct kops *k, struct comm **out, struct err *e)
{
    bool gpus = strcmp(k->name, "cuda") == 0;
    int rc;

    *out = NULL;
    if (r->world == 1) {
        return comm_open_self(out);
    }
    if (!gpus && r->over == OVER_NCCL) {
        return err_set(e, E_USAGE,
                       "--comm nccl is for GPUs, but the ranks run on CPUs; use --comm mpi");
    }
    if (gpus && r->over != OVER_MPI) {
        return join_nccl(r, out, e);
    }
    if (r->launcher != LAUNCHER_OPENMPI) {
        return err_set(e, E_UNSUPPORTED, "%d ranks%s communicate over MPI; start them with mpirun",
                       r->world, gpus ? "" : " on CPUs");
    }
    rc = comm_open_mpi(k, r->ordered, out, e);
    if (rc == 0 && (*out)->size != r->world) {
        rc = err_set(e, E_CONFIG, "MPI has %d ranks, but the environment says %d", (*out)->size,
                     r->world);
        comm_close(out);
    }
    return rc;
}
