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
};

plugin_mpi_fn plugin_mpi;

static int sum_piece(const struct mpi_comm *x, struct kstream *ks, enum dtype dt, char *p, int n)
{
    MPI_Datatype type = dt == DT_F64 ? MPI_DOUBLE : MPI_FLOAT;
    size_t bytes = (size_t)n * dtype_bytes(dt);
    char *host = x->stage != NULL ? x->stage : p;
    int rc = 0;

    if (x->stage != NULL) {
        rc = x->k->mem_get(ks, host, p, bytes);
    }
    if (rc == 0 &&
        MPI_Allreduce(MPI_IN_PLACE, host, n, type, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS) {
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
    free(x->stage);
    free(x);
    MPI_Finalize();
}

int plugin_mpi(const struct kops *k, struct comm **out, char *why, size_t room)
{
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
    if (strcmp(k->name, "cpu") != 0) {
        x->stage = malloc((size_t)PIECE_ELEMENTS * sizeof(double));
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &x->base.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &x->base.size);
    *out = &x->base;
    return 0;
}
