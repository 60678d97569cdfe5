#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "kernels/plugin.h"

enum { PIECE_ELEMENTS = 1 << 22 }; /* MPI counts in int, and staging need not hold everything */

struct mpi_comm {
    struct comm base;
    const struct kops *k;
    char *stage; /* host memory that device memory passes through; NULL on the CPU */
    struct ordered *ordered; /* NULL: MPI chooses the order of sums */
};

plugin_mpi_fn plugin_mpi;

/* --- sums in the order of the ranks -------------------------------------------------------------------------------- */

/* Each rank sums one chunk of every piece: it gets that chunk from all others, adds them up by rank, and gives the sums to
 * all. MPI only moves bytes, so its algorithms have no say in the bits. */
struct ordered {
    char *received; /* a chunk of each rank */
    int *count;     /* elements of each rank's chunk */
    int *first;     /* where it begins in the piece */
    int *mine;      /* elements of this rank's, for each rank */
    int *place;     /* where it begins in `received` */
};

static void ordered_close(struct ordered **op)
{
    struct ordered *o = *op;

    *op = NULL;
    if (o != NULL) {
        free(o->received);
        free(o->count);
        free(o);
    }
}

static struct ordered *ordered_open(int ranks)
{
    size_t n = (size_t)ranks;
    struct ordered *o = calloc(1, sizeof *o);

    if (o != NULL) {
        o->received = malloc((PIECE_ELEMENTS + n) * sizeof(double));
        o->count = calloc(4 * n, sizeof *o->count);
        if (o->received == NULL || o->count == NULL) {
            ordered_close(&o);
            return NULL;
        }
        o->first = o->count + n;
        o->mine = o->first + n;
        o->place = o->mine + n;
    }
    return o;
}

/* Chunks of equal size, but for the last ones when n is no multiple. */
static void cut(struct ordered *o, int n, int rank, int ranks)
{
    int chunk = (n + ranks - 1) / ranks;

    for (int r = 0; r < ranks; r++) {
        int64_t at = (int64_t)r * chunk;

        o->first[r] = at < n ? (int)at : n;
        o->count[r] = n - o->first[r] < chunk ? n - o->first[r] : chunk;
    }
    for (int r = 0; r < ranks; r++) {
        o->mine[r] = o->count[rank];
        o->place[r] = r * o->count[rank];
    }
}

static void add_up_f32(float *to, const float *from, int n, int ranks)
{
    for (int i = 0; i < n; i++) {
        to[i] = from[i];
    }
    for (int r = 1; r < ranks; r++) {
        for (int i = 0; i < n; i++) {
            to[i] += from[(size_t)r * (size_t)n + (size_t)i];
        }
    }
}

static void add_up_f64(double *to, const double *from, int n, int ranks)
{
    for (int i = 0; i < n; i++) {
        to[i] = from[i];
    }
    for (int r = 1; r < ranks; r++) {
        for (int i = 0; i < n; i++) {
            to[i] += from[(size_t)r * (size_t)n + (size_t)i];
        }
    }
}

/* In place, of host memory. */
static int sum_in_order(const struct mpi_comm *x, MPI_Datatype type, void *p, int n)
{
    struct ordered *o = x->ordered;
    int rank = x->base.rank, ranks = x->base.size, rc;

    cut(o, n, rank, ranks);
    rc = MPI_Alltoallv(p, o->count, o->first, type, o->received, o->mine, o->place, type,
                       MPI_COMM_WORLD);
    if (rc != MPI_SUCCESS) {
        return rc;
    }
    if (type == MPI_DOUBLE) {
        add_up_f64((double *)p + o->first[rank], (const double *)(const void *)o->received,
                   o->count[rank], ranks);
    } else {
        add_up_f32((float *)p + o->first[rank], (const float *)(const void *)o->received,
                   o->count[rank], ranks);
    }
    return MPI_Allgatherv(MPI_IN_PLACE, 0, type, p, o->count, o->first, type, MPI_COMM_WORLD);
}

/* --- the operations ------------------------------------------------------------------------------------------------ */

static int sum_on_host(const struct mpi_comm *x, MPI_Datatype type, void *p, int n)
{
    return x->ordered != NULL ? sum_in_order(x, type, p, n)
                              : MPI_Allreduce(MPI_IN_PLACE, p, n, type, MPI_SUM, MPI_COMM_WORLD);
}

static int sum_piece(const struct mpi_comm *x, struct kstream *ks, enum dtype dt, char *p, int n)
{
    MPI_Datatype type = dt == DT_F64 ? MPI_DOUBLE : MPI_FLOAT;
    size_t bytes = (size_t)n * dtype_bytes(dt);
    char *host = x->stage != NULL ? x->stage : p;
    int rc = 0;

    if (x->stage != NULL) {
        rc = x->k->mem_get(ks, host, p, bytes);
    }
    if (rc == 0 && sum_on_host(x, type, host, n) != MPI_SUCCESS) {
        rc = E_NETWORK;
    }
    if (rc == 0 && x->stage != NULL) {
        rc = x->k->mem_put(ks, p, host, bytes);
    }
    return rc;
}

static int mpi_allreduce(struct comm *c, struct kstream *ks, enum dtype dt, void *buf, int64_t n)
{
    char *p = buf;
    int rc = dtype_accum(dt) == dt ? 0 : E_UNSUPPORTED; /* MPI knows no 16-bit floats */

    for (int64_t i = 0; rc == 0 && i < n; i += PIECE_ELEMENTS) {
        int count = (int)(n - i < PIECE_ELEMENTS ? n - i : PIECE_ELEMENTS);
        rc = sum_piece((struct mpi_comm *)c, ks, dt, p + (size_t)i * dtype_bytes(dt), count);
    }
    return rc;
}

static int mpi_barrier(struct comm *c, struct kstream *ks)
{
    (void)c;
    (void)ks;
    return MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS ? 0 : E_NETWORK;
}

static void mpi_close(struct comm **cp)
{
    struct mpi_comm *x = (struct mpi_comm *)*cp;

    *cp = NULL;
    ordered_close(&x->ordered);
    free(x->stage);
    free(x);
    MPI_Finalize();
}

int plugin_mpi(const struct kops *k, bool ordered, struct comm **out, char *why, size_t room)
{
    bool on_host = strcmp(k->name, "cpu") == 0;
    struct mpi_comm *x;
    int level;

    *out = NULL;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS) {
        snprintf(why, room, "MPI_Init failed");
        return E_NETWORK;
    }
    /* Without this, MPI ends the process itself when a peer is gone, and no sentence is said. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    x = calloc(1, sizeof *x);
    if (x == NULL) {
        return E_NOSPACE;
    }
    x->k = k;
    x->base = (struct comm){
        .name = "mpi", .allreduce = mpi_allreduce, .barrier = mpi_barrier, .close = mpi_close};
    MPI_Comm_rank(MPI_COMM_WORLD, &x->base.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &x->base.size);
    if (!on_host) {
        x->stage = malloc((size_t)PIECE_ELEMENTS * sizeof(double));
    }
    x->ordered = ordered ? ordered_open(x->base.size) : NULL;
    *out = &x->base;
    if ((!on_host && x->stage == NULL) || (ordered && x->ordered == NULL)) {
        snprintf(why, room, "no memory for what is exchanged");
        mpi_close(out);
        return E_NOSPACE;
    }
    return 0;
}
