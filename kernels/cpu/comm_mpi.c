#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "kernels/float16.h"
#include "kernels/plugin.h"

/* MPI counts in int, and staging need not hold everything. */
enum { PIECE_ELEMENTS = 1 << 22, PIECE_BYTES = 32 << 20 };

struct mpi_comm {
    struct comm base;
    const struct kops *k;
    MPI_Comm group;          /* all ranks, or those of a split */
    char *stage;             /* host memory that device memory passes through; NULL on the CPU */
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

static void add_up_f32(float *to, const float *from, size_t step, int n, int ranks)
{
    for (int i = 0; i < n; i++) {
        to[i] = from[i];
    }
    for (int r = 1; r < ranks; r++) {
        for (int i = 0; i < n; i++) {
            to[i] += from[(size_t)r * step + (size_t)i];
        }
    }
}

static void add_up_f64(double *to, const double *from, size_t step, int n, int ranks)
{
    for (int i = 0; i < n; i++) {
        to[i] = from[i];
    }
    for (int r = 1; r < ranks; r++) {
        for (int i = 0; i < n; i++) {
            to[i] += from[(size_t)r * step + (size_t)i];
        }
    }
}

/* Widened, added up and rounded once. */
static void add_up_16(enum dtype dt, uint16_t *to, const uint16_t *from, size_t step, int n,
                      int ranks)
{
    for (int i = 0; i < n; i++) {
        float sum = 0;

        for (int r = 0; r < ranks; r++) {
            uint16_t x = from[(size_t)r * step + (size_t)i];

            sum += dt == DT_BF16 ? bf16_widen(x) : f16_widen(x);
        }
        to[i] = dt == DT_BF16 ? bf16_round(sum) : f16_round(sum);
    }
}

/* `step` elements from one rank's to the next's. */
static void add_up(enum dtype dt, void *to, const void *from, size_t step, int n, int ranks)
{
    switch (dt) {
    case DT_F64:
        add_up_f64(to, from, step, n, ranks);
        break;
    case DT_F32:
        add_up_f32(to, from, step, n, ranks);
        break;
    case DT_BF16:
    case DT_F16:
        add_up_16(dt, to, from, step, n, ranks);
        break;
    }
}

/* In place, of host memory. */
static int sum_in_order(const struct mpi_comm *x, MPI_Datatype type, void *p, int n)
{
    struct ordered *o = x->ordered;
    int rank = x->base.rank, ranks = x->base.size, rc;

    cut(o, n, rank, ranks);
    rc = MPI_Alltoallv(p, o->count, o->first, type, o->received, o->mine, o->place, type, x->group);
    if (rc != MPI_SUCCESS) {
        return rc;
    }
    add_up(type == MPI_DOUBLE ? DT_F64 : DT_F32,
           (char *)p + (size_t)o->first[rank] * (type == MPI_DOUBLE ? 8 : 4), o->received,
           (size_t)o->count[rank], o->count[rank], ranks);
    return MPI_Allgatherv(MPI_IN_PLACE, 0, type, p, o->count, o->first, type, x->group);
}

/* --- the operations ------------------------------------------------------------------------------------------------ */

static int sum_on_host(const struct mpi_comm *x, MPI_Datatype type, void *p, int n)
{
    return x->ordered != NULL ? sum_in_order(x, type, p, n)
                              : MPI_Allreduce(MPI_IN_PLACE, p, n, type, MPI_SUM, x->group);
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

/* --- pieces ------------------------------------------------------------------------------------------------------------ */

/* Sends bytes of `out` + p * step to each other rank p, and receives as many from it at `in` + p * step. */
static int exchange(const struct mpi_comm *x, const char *out, size_t out_step, char *in,
                    size_t in_step, int bytes)
{
    int size = x->base.size, n = 0, rc = 0;
    MPI_Request *request = calloc((size_t)(2 * size), sizeof(MPI_Request));

    if (request == NULL) {
        return E_NOSPACE;
    }
    for (int p = 0; rc == 0 && p < size; p++) {
        if (p != x->base.rank && (MPI_Irecv(in + (size_t)p * in_step, bytes, MPI_BYTE, p, 0,
                                            x->group, &request[n++]) != MPI_SUCCESS ||
                                  MPI_Isend(out + (size_t)p * out_step, bytes, MPI_BYTE, p, 0,
                                            x->group, &request[n++]) != MPI_SUCCESS)) {
            rc = E_NETWORK;
        }
    }
    if (rc == 0 && MPI_Waitall(n, request, MPI_STATUSES_IGNORE) != MPI_SUCCESS) {
        rc = E_NETWORK;
    }
    free(request);
    return rc;
}

static int mpi_reduce_scatter(struct comm *c, struct kstream *ks, enum dtype dt, const void *src,
                              void *dst, int64_t n)
{
    struct mpi_comm *x = (struct mpi_comm *)c;
    size_t size = dtype_bytes(dt), step = PIECE_BYTES / (size_t)c->size / size * size;
    size_t room = step * (size_t)c->size, all = (size_t)n * size;
    char *in = malloc(room), *out = malloc(room);
    int rc = in == NULL || out == NULL ? E_NOSPACE : 0;

    for (size_t at = 0; rc == 0 && at < all; at += step) {
        size_t bytes = all - at < step ? all - at : step;

        for (int p = 0; rc == 0 && p < c->size; p++) {
            char *to = (p == c->rank ? in : out) + (size_t)p * step;

            rc = x->k->mem_get(ks, to, (const char *)src + (size_t)p * all + at, bytes);
        }
        rc = rc != 0 ? rc : exchange(x, out, step, in, step, (int)bytes);
        if (rc == 0) {
            add_up(dt, out, in, step / size, (int)(bytes / size), c->size);
            rc = x->k->mem_put(ks, (char *)dst + at, out, bytes);
        }
    }
    free(in);
    free(out);
    return rc;
}

static int mpi_allgather(struct comm *c, struct kstream *ks, enum dtype dt, const void *src,
                         void *dst, int64_t n)
{
    struct mpi_comm *x = (struct mpi_comm *)c;
    size_t step = PIECE_BYTES / (size_t)c->size, all = (size_t)n * dtype_bytes(dt);
    char *in = malloc(step * (size_t)c->size);
    int rc = in == NULL ? E_NOSPACE : 0;

    for (size_t at = 0; rc == 0 && at < all; at += step) {
        size_t bytes = all - at < step ? all - at : step;
        char *mine = in + (size_t)c->rank * step;

        rc = x->k->mem_get(ks, mine, (const char *)src + at, bytes);
        rc = rc != 0 ? rc : exchange(x, mine, 0, in, step, (int)bytes);
        for (int p = 0; rc == 0 && p < c->size; p++) {
            rc =
                x->k->mem_put(ks, (char *)dst + (size_t)p * all + at, in + (size_t)p * step, bytes);
        }
    }
    free(in);
    return rc;
}

static int mpi_barrier(struct comm *c, struct kstream *ks)
{
    (void)ks;
    return MPI_Barrier(((struct mpi_comm *)c)->group) == MPI_SUCCESS ? 0 : E_NETWORK;
}

static void mpi_close(struct comm **cp)
{
    struct mpi_comm *x = (struct mpi_comm *)*cp;

    *cp = NULL;
    ordered_close(&x->ordered);
    free(x->stage);
    if (x->group == MPI_COMM_WORLD) {
        MPI_Finalize();
    } else {
        MPI_Comm_free(&x->group);
    }
    free(x);
}

static int open_group(const struct kops *k, MPI_Comm group, bool ordered, struct comm **out);

static int mpi_split(struct comm *c, int color, struct comm **out)
{
    const struct mpi_comm *x = (struct mpi_comm *)c;
    MPI_Comm group;

    *out = NULL;
    return MPI_Comm_split(x->group, color, c->rank, &group) != MPI_SUCCESS
               ? E_NETWORK
               : open_group(x->k, group, x->ordered != NULL, out);
}

/* Takes the group, also when it fails. */
static int open_group(const struct kops *k, MPI_Comm group, bool ordered, struct comm **out)
{
    bool on_host = strcmp(k->name, "cpu") == 0;
    struct mpi_comm *x = calloc(1, sizeof *x);

    *out = NULL;
    if (x == NULL) {
        return E_NOSPACE;
    }
    x->k = k;
    x->group = group;
    x->base = (struct comm){.name = "mpi",
                            .post_allreduce = mpi_allreduce,
                            .post_reduce_scatter = mpi_reduce_scatter,
                            .post_allgather = mpi_allgather,
                            .post_barrier = mpi_barrier,
                            .split = mpi_split,
                            .close = mpi_close};
    /* Without this, MPI ends the process itself when a peer is gone, and no sentence is said. */
    MPI_Comm_set_errhandler(group, MPI_ERRORS_RETURN);
    MPI_Comm_rank(group, &x->base.rank);
    MPI_Comm_size(group, &x->base.size);
    if (!on_host) {
        x->stage = malloc((size_t)PIECE_ELEMENTS * sizeof(double));
    }
    x->ordered = ordered ? ordered_open(x->base.size) : NULL;
    *out = &x->base;
    if ((!on_host && x->stage == NULL) || (ordered && x->ordered == NULL)) {
        mpi_close(out);
        return E_NOSPACE;
    }
    return 0;
}

/* Sums in the order of the ranks are other calls of MPI's: ranks that differ would wait for each other. */
static bool all_say(bool x)
{
    int sum = x, size;

    return MPI_Comm_size(MPI_COMM_WORLD, &size) == MPI_SUCCESS &&
           MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS &&
           sum == (x ? size : 0);
}

int plugin_mpi(const struct kops *k, bool ordered, struct comm **out, char *why, size_t room)
{
    int level, rc;

    *out = NULL;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS) {
        snprintf(why, room, "MPI_Init failed");
        return E_NETWORK;
    }
    if (!all_say(ordered)) {
        snprintf(why, room, "some ranks were started with --deterministic, others were not");
        return E_CONFIG;
    }
    rc = open_group(k, MPI_COMM_WORLD, ordered, out);
    if (rc != 0) {
        snprintf(why, room, "no memory for what is exchanged");
    }
    return rc;
}
