#include "agent/nodes.h"

#include <stdio.h>
#include <string.h>

#include "common/base/slice.h"
#include "common/codec/hostlist.h"

enum { JOIN_MS = 600000, LOST_MS = 30000, LOST_MIN_MS = 1000, JOB_PORTS = 1024 };

struct find {
    const struct nodes_said *said;
    const char *(*env)(const char *);
    const char *hostname;
    struct nodes *out;
    bool have_rank, have_host, have_id;
};

/* --- values ----------------------------------------------------------------------------------- */

/* A variable that is set to nothing is as one that is not set. */
static const char *nodes_variable(const struct find *f, const char *name)
{
    const char *v = f->env(name);

    return v != NULL && v[0] != '\0' ? v : NULL;
}

static int read_number(const char *what, const char *text, uint64_t low, uint64_t high,
                       unsigned *out, struct err *e)
{
    uint64_t n;

    if (!slice_u64(slice_str(text), &n) || n < low || n > high) {
        return err_set(e, E_CONFIG, "%s is \"%.40s\"; it must be a number from %llu to %llu", what,
                       text, (unsigned long long)low, (unsigned long long)high);
    }
    *out = (unsigned)n;
    return 0;
}

/* "2" or "1:2" */
static int read_range(const char *what, const char *text, struct nodes *out, struct err *e)
{
    struct slice rest = slice_str(text);
    struct slice first = slice_cut(&rest, ':');
    uint64_t min, max;

    if (!slice_u64(first, &min) || (rest.n > 0 && !slice_u64(rest, &max))) {
        min = 0;
    }
    if (rest.n == 0) {
        max = min;
    }
    if (min == 0 || max < min || max > NODES_MAX) {
        return err_set(e, E_CONFIG,
                       "%s is \"%.40s\"; it must be a number of nodes or MIN:MAX, up to %d", what,
                       text, NODES_MAX);
    }
    out->min = (unsigned)min;
    out->max = (unsigned)max;
    return 0;
}

static int take_rank(struct find *f, const char *what, const char *text, struct err *e)
{
    if (f->have_rank || text == NULL) {
        return 0;
    }
    f->have_rank = true;
    return read_number(what, text, 0, NODES_MAX - 1, &f->out->rank, e);
}

static int take_node_text(char out[NODES_TEXT], const char *what, struct slice text, struct err *e)
{
    if (text.n == 0 || text.n >= NODES_TEXT) {
        return err_set(e, E_CONFIG, "%s is empty or longer than %d bytes", what, NODES_TEXT - 1);
    }
    memcpy(out, text.p, text.n);
    out[text.n] = '\0';
    return 0;
}

/* "host:29400", "[fd00::1]:29400", "host" */
static int take_place(struct find *f, const char *what, const char *text, struct err *e)
{
    struct slice host = slice_str(text), port = SLICE_NONE;
    char digits[8];
    int rc;

    if (f->have_host || text == NULL) {
        return 0;
    }
    if (slice_starts(host, SLICE("["))) {
        port = slice_from(host, 1);
        host = slice_cut(&port, ']');
    } else if (slice_find(host, ':') >= 0) {
        port = host;
        host = slice_cut(&port, ':');
        port = slice_of(port.p - 1, port.n + 1);
    }
    rc = take_node_text(f->out->host, what, host, e);
    if (rc == 0 && port.n > 0) {
        snprintf(digits, sizeof digits, SLICE_FMT, SLICE_ARG(slice_from(port, 1)));
        rc = port.p[0] != ':' ? err_set(e, E_CONFIG, "%s is \"%.80s\"; write HOST:PORT", what, text)
                              : read_number(what, digits, 1, 65000, &f->out->port, e);
    }
    f->have_host = rc == 0;
    return rc;
}

static int take_id(struct find *f, const char *what, const char *text, struct err *e)
{
    if (f->have_id || text == NULL) {
        return 0;
    }
    f->have_id = true;
    return take_node_text(f->out->id, what, slice_str(text), e);
}

/* --- the sources ------------------------------------------------------------------------------ */

static int from_said(struct find *f, struct err *e)
{
    const struct nodes_said *s = f->said;
    int rc = 0;

    if (s->elastic != NULL) {
        rc = read_range("--elastic", s->elastic, f->out, e);
        if (rc == 0 && s->nodes != 0 && s->nodes != f->out->max) {
            rc = err_set(e, E_CONFIG,
                         "--nodes %u and --elastic %.40s contradict each other; leave out --nodes",
                         s->nodes, s->elastic);
        }
    } else if (s->nodes != 0) {
        f->out->min = f->out->max = s->nodes;
    }
    rc = rc != 0 ? rc : take_rank(f, "--node-rank", s->node_rank, e);
    rc = rc != 0 ? rc : take_place(f, "--rendezvous", s->rendezvous, e);
    f->out->external = s->external;
    rc = rc != 0 ? rc : take_id(f, "--rendezvous-id", s->id, e);
    return rc != 0 ? rc
                   : take_id(f, "TRAINAGENT_RENDEZVOUS_ID",
                             nodes_variable(f, "TRAINAGENT_RENDEZVOUS_ID"), e);
}

static int from_torchrun(struct find *f, struct err *e)
{
    const char *nodes = nodes_variable(f, "PET_NNODES");
    const char *addr = nodes_variable(f, "PET_MASTER_ADDR");
    const char *port = nodes_variable(f, "PET_MASTER_PORT");
    int rc = 0;

    if (nodes == NULL) {
        return 0;
    }
    if (f->out->max == 0) {
        rc = read_range("PET_NNODES", nodes, f->out, e);
    }
    rc = rc != 0 ? rc : take_rank(f, "PET_NODE_RANK", nodes_variable(f, "PET_NODE_RANK"), e);
    rc = rc != 0 ? rc
                 : take_place(f, "PET_RDZV_ENDPOINT", nodes_variable(f, "PET_RDZV_ENDPOINT"), e);
    if (rc == 0 && !f->have_host && addr != NULL) {
        rc = take_place(f, "PET_MASTER_ADDR", addr, e);
        if (rc == 0 && port != NULL) {
            rc = read_number("PET_MASTER_PORT", port, 1, 65000, &f->out->port, e);
        }
    }
    return rc != 0 ? rc : take_id(f, "PET_RDZV_ID", nodes_variable(f, "PET_RDZV_ID"), e);
}

static int slurm_place(struct find *f, const char *job, struct err *e)
{
    const char *list = nodes_variable(f, "SLURM_STEP_NODELIST");

    list = list != NULL ? list : nodes_variable(f, "SLURM_JOB_NODELIST");
    if (f->have_host) {
        return 0;
    }
    if (list == NULL || !hostlist_first(slice_str(list), f->out->host)) {
        return err_set(e, E_CONFIG,
                       "Slurm's node list \"%.80s\" has no first host; give --rendezvous HOST:PORT",
                       list != NULL ? list : "");
    }
    f->have_host = true;
    f->out->port = NODES_PORT + (unsigned)(slice_hash(slice_str(job)) % JOB_PORTS);
    return 0;
}

/* Only in a step: a batch script that calls us without srun runs on its first node alone. */
static int from_slurm(struct find *f, struct err *e)
{
    const char *job = nodes_variable(f, "SLURM_JOB_ID");
    const char *nodes = nodes_variable(f, "SLURM_STEP_NUM_NODES");
    const char *tasks = nodes_variable(f, "SLURM_STEP_NUM_TASKS");
    const char *step = nodes_variable(f, "SLURM_STEP_ID");
    const char *again = nodes_variable(f, "SLURM_RESTART_COUNT");
    unsigned nnodes, ntasks;
    char id[NODES_TEXT];
    int rc;

    if (job == NULL || nodes == NULL || tasks == NULL || f->out->max == 1) {
        return 0;
    }
    rc = read_number("SLURM_STEP_NUM_NODES", nodes, 1, NODES_MAX, &nnodes, e);
    rc = rc != 0 ? rc : read_number("SLURM_STEP_NUM_TASKS", tasks, 1, UINT32_MAX, &ntasks, e);
    if (rc == 0 && ntasks != nnodes && !f->have_rank) {
        rc = err_set(
            e, E_CONFIG,
            "srun started %u tasks on %u nodes, but each node needs exactly one agent, which "
            "starts the ranks of its node; add --ntasks-per-node=1 (or give --nodes 1 if the "
            "tasks are independent)",
            ntasks, nnodes);
    }
    if (rc != 0) {
        return rc;
    }
    if (f->out->max == 0) {
        f->out->min = f->out->max = nnodes;
    }
    if (f->out->max == 1) {
        return 0;
    }
    snprintf(id, sizeof id, "slurm-%.60s-%.60s-%.60s", job, step != NULL ? step : "",
             again != NULL ? again : "0");
    rc = take_rank(f, "SLURM_NODEID", nodes_variable(f, "SLURM_NODEID"), e);
    rc = rc != 0 ? rc : slurm_place(f, job, e);
    return rc != 0 || f->out->external ? rc : take_id(f, "SLURM_JOB_ID", id, e);
}

static int from_openmpi(struct find *f, struct err *e)
{
    const char *size = nodes_variable(f, "OMPI_COMM_WORLD_SIZE");
    const char *job = nodes_variable(f, "PMIX_NAMESPACE");
    unsigned n;
    int rc;

    if (size == NULL || f->out->max == 1) {
        return 0;
    }
    rc = read_number("OMPI_COMM_WORLD_SIZE", size, 1, NODES_MAX, &n, e);
    if (rc == 0 && f->out->max == 0) {
        f->out->min = f->out->max = n;
    }
    if (rc != 0 || f->out->max == 1) {
        return rc;
    }
    rc = take_rank(f, "OMPI_COMM_WORLD_RANK", nodes_variable(f, "OMPI_COMM_WORLD_RANK"), e);
    if (rc == 0 && !f->have_host) {
        return err_set(
            e, E_CONFIG,
            "mpirun started %u agents and does not say where the first one is; give --rendezvous "
            "HOST:PORT (or --nodes 1 if they are independent)",
            n);
    }
    return rc != 0 || f->out->external ? rc : take_id(f, "PMIX_NAMESPACE", job, e);
}

/* Pod "train-3" of a StatefulSet; its name with the domain is
 * "train-3.train.default.svc.cluster.local". */
static int from_kubernetes(struct find *f, struct err *e)
{
    struct slice domain = slice_str(f->hostname), pod = slice_cut(&domain, '.');
    const char *index = nodes_variable(f, "JOB_COMPLETION_INDEX");
    size_t base = pod.n;
    char ordinal[16], place[NODES_TEXT];
    int rc = 0;

    if (nodes_variable(f, "KUBERNETES_SERVICE_HOST") == NULL || f->out->max < 2) {
        return 0;
    }
    while (base > 0 && pod.p[base - 1] >= '0' && pod.p[base - 1] <= '9') {
        base--;
    }
    if (base == pod.n || base < 2 || pod.p[base - 1] != '-' || pod.n - base >= sizeof ordinal) {
        return take_rank(f, "JOB_COMPLETION_INDEX", index, e);
    }
    snprintf(ordinal, sizeof ordinal, SLICE_FMT, SLICE_ARG(slice_from(pod, base)));
    rc = take_rank(f, "the pod's ordinal", index != NULL ? index : ordinal, e);
    if (rc == 0 && !f->have_host && domain.n > 0) {
        snprintf(place, sizeof place, SLICE_FMT "0." SLICE_FMT, SLICE_ARG(slice_first(pod, base)),
                 SLICE_ARG(domain));
        rc = take_place(f, "the pod's name", place, e);
    }
    return rc;
}

/* Node 0's address, which a scheduler would say, is not where that one is. */
static int check_external(const struct find *f, struct err *e)
{
    return !f->out->external || f->have_host
               ? 0
               : err_set(e, E_CONFIG,
                         "--rendezvous-external needs --rendezvous HOST:PORT, the address on which "
                         "`trainagent rendezvous` listens");
}

/* --- together --------------------------------------------------------------------------------- */

static int check_found_nodes(struct find *f, struct err *e)
{
    struct nodes *n = f->out;

    if (!f->have_rank) {
        return err_set(e, E_CONFIG,
                       "%u nodes, but the rank of this one is unknown; give --node-rank (0 to %u)",
                       n->max, n->max - 1);
    }
    if (n->rank >= n->max) {
        return err_set(e, E_CONFIG, "node rank %u is not less than the number of nodes, %u",
                       n->rank, n->max);
    }
    if (!f->have_host) {
        return err_set(
            e, E_CONFIG,
            "%u nodes, but the rendezvous address is unknown; give --rendezvous HOST:PORT, an "
            "address of node 0 that all nodes can reach",
            n->max);
    }
    if (n->lost_ms < LOST_MIN_MS) {
        return err_set(e, E_CONFIG, "--node-timeout must be at least 1s");
    }
    if (!f->have_id) {
        snprintf(n->id, sizeof n->id, "%.200s:%u", n->host, n->port);
    }
    return 0;
}

int nodes_find(const struct nodes_said *said, const char *(*env)(const char *),
               const char *hostname, struct nodes *out, struct err *e)
{
    struct find f = {.said = said, .env = env, .hostname = hostname, .out = out};
    int rc;

    *out = (struct nodes){.port = NODES_PORT,
                          .join_ms = said->join_ms != 0 ? said->join_ms : JOIN_MS,
                          .lost_ms = said->lost_ms != 0 ? said->lost_ms : LOST_MS};
    rc = from_said(&f, e);
    rc = rc != 0 ? rc : from_torchrun(&f, e);
    rc = rc != 0 ? rc : check_external(&f, e);
    rc = rc != 0 ? rc : from_slurm(&f, e);
    rc = rc != 0 ? rc : from_openmpi(&f, e);
    rc = rc != 0 ? rc : from_kubernetes(&f, e);
    if (rc == 0 && out->max == 0 && (said->node_rank != NULL || said->rendezvous != NULL)) {
        return err_set(
            e, E_CONFIG,
            "%s is given without the number of nodes; give --nodes (1 if this node runs alone)",
            said->node_rank != NULL ? "--node-rank" : "--rendezvous");
    }
    if (rc == 0 && out->max < 2) {
        out->min = out->max = 1;
        out->rank = 0; /* among the others, of which none takes part */
        return 0;
    }
    return rc != 0 ? rc : check_found_nodes(&f, e);
}
