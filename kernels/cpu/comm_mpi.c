#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "kernels/float16.h"
#include "kernels/plugin.h"

/* MPI counts in int, and staging need not hold everything. What goes from the caller's memory to
 * the caller's goes at once. */
enum { PIECE_ELEMENTS = 1 << 22, PIECE_BYTES = 32 << 20, DIRECT_BYTES = 1 << 30 };

struct mpi_comm {
    struct comm base;
    const struct kops *k;
    MPI_Comm group;       /* all ranks, or those of a split */
    bool ordered;         /* sums are; else MPI chooses their order, but for 16-bit types */
    char *stage;          /* host memory that device memory passes through; NULL on the CPU */
    struct ordered *sums; /* as all below NULL until it is first needed */
    char *received;       /* a piece of each rank's, PIECE_BYTES of all together */
    char *sent;           /* the same; of device memory */
    MPI_Request *request; /* two for each rank */
};

plugin_mpi_fn plugin_mpi;

/* --- sums in the order of the ranks ----------------------------------------------------------- */

/* Each rank sums one chunk of every piece: it gets that chunk from all others, adds them up by
 * rank, and gives the sums to all. MPI only moves bytes, so its algorithms have no say in the
 * bits. */
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
static void cut_ordered_range(struct ordered *o, int n, int rank, int ranks)
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

/* MPI only moves these: 16-bit types are numbers to us alone. */
static MPI_Datatype mpi_type_of(enum dtype dt)
{
    switch (dt) {
    case DT_F64:
        return MPI_DOUBLE;
    case DT_F32:
        return MPI_FLOAT;
    case DT_BF16:
    case DT_F16:
        break;
    }
    return MPI_UINT16_T;
}

/* In place, of host memory. */
static int sum_in_order(struct mpi_comm *x, enum dtype dt, void *p, int n)
{
    MPI_Datatype type = mpi_type_of(dt);
    int rank = x->base.rank, ranks = x->base.size;
    struct ordered *o;

    x->sums = x->sums != NULL ? x->sums : ordered_open(ranks);
    o = x->sums;
    if (o == NULL) {
        return E_NOSPACE;
    }
    cut_ordered_range(o, n, rank, ranks);
    if (MPI_Alltoallv(p, o->count, o->first, type, o->received, o->mine, o->place, type,
                      x->group) != MPI_SUCCESS) {
        return E_NETWORK;
    }
    add_up(dt, (char *)p + (size_t)o->first[rank] * dtype_bytes(dt), o->received,
           (size_t)o->count[rank], o->count[rank], ranks);
    return MPI_Allgatherv(MPI_IN_PLACE, 0, type, p, o->count, o->first, type, x->group) ==
                   MPI_SUCCESS
               ? 0
               : E_NETWORK;
}

/* --- the operations --------------------------------------------------------------------------- */

static int sum_on_host(struct mpi_comm *x, enum dtype dt, void *p, int n)
{
    if (x->ordered || dtype_accum(dt) != dt) {
        return sum_in_order(x, dt, p, n);
    }
    return MPI_Allreduce(MPI_IN_PLACE, p, n, mpi_type_of(dt), MPI_SUM, x->group) == MPI_SUCCESS
               ? 0
               : E_NETWORK;
}

static int sum_piece(struct mpi_comm *x, struct kstream *ks, enum dtype dt, char *p, int n)
{
    size_t bytes = (size_t)n * dtype_bytes(dt);
    char *host = x->stage != NULL ? x->stage : p;
    int rc = x->stage != NULL ? x->k->mem_get(ks, host, p, bytes) : 0;

    rc = rc != 0 ? rc : sum_on_host(x, dt, host, n);
    if (rc == 0 && x->stage != NULL) {
        rc = x->k->mem_put(ks, p, host, bytes);
    }
    return rc;
}

static int mpi_allreduce(struct comm *c, struct kstream *ks, enum dtype dt, void *buf, int64_t n)
{
    char *p = buf;
    int rc = 0;

    for (int64_t i = 0; rc == 0 && i < n; i += PIECE_ELEMENTS) {
        int count = (int)(n - i < PIECE_ELEMENTS ? n - i : PIECE_ELEMENTS);
        rc = sum_piece((struct mpi_comm *)c, ks, dt, p + (size_t)i * dtype_bytes(dt), count);
    }
    return rc;
}

/* --- pieces ----------------------------------------------------------------------------------- */

/* Sends bytes of `out` + p * step to each other rank p, and receives as many from it at `in` + p *
 * step. */
static int exchange_mpi_blocks(struct mpi_comm *x, const char *out, size_t out_step, char *in,
                               size_t in_step, int bytes)
{
    MPI_Request *request = x->request;
    int n = 0;

    for (int p = 0; p < x->base.size; p++) {
        if (p != x->base.rank && (MPI_Irecv(in + (size_t)p * in_step, bytes, MPI_BYTE, p, 0,
                                            x->group, &request[n++]) != MPI_SUCCESS ||
                                  MPI_Isend(out + (size_t)p * out_step, bytes, MPI_BYTE, p, 0,
                                            x->group, &request[n++]) != MPI_SUCCESS)) {
            return E_NETWORK;
        }
    }
    return MPI_Waitall(n, request, MPI_STATUSES_IGNORE) == MPI_SUCCESS ? 0 : E_NETWORK;
}

/* Memory for what is received, and on a device for what is sent: taken once. */
static int take_room(struct mpi_comm *x)
{
    size_t ranks = (size_t)x->base.size;

    x->request = x->request != NULL ? x->request : calloc(2 * ranks, sizeof(MPI_Request));
    x->received = x->received != NULL ? x->received : malloc(PIECE_BYTES);
    if (x->stage != NULL && x->sent == NULL) {
        x->sent = malloc(PIECE_BYTES);
    }
    return x->request == NULL || x->received == NULL || (x->stage != NULL && x->sent == NULL)
               ? E_NOSPACE
               : 0;
}

/* `bytes` of each rank's piece, from byte `at` on; the pieces have `all`. Each rank's part lies in
 * `received` then, this one's as well: what is sent comes from where it is, but for a device's
 * memory. */
static int trade(struct mpi_comm *x, struct kstream *ks, const char *src, size_t all, size_t at,
                 size_t step, size_t bytes)
{
    int rank = x->base.rank;
    int rc =
        x->k->mem_get(ks, x->received + (size_t)rank * step, src + (size_t)rank * all + at, bytes);

    for (int p = 0; x->stage != NULL && rc == 0 && p < x->base.size; p++) {
        if (p != rank) {
            rc = x->k->mem_get(ks, x->sent + (size_t)p * step, src + (size_t)p * all + at, bytes);
        }
    }
    return rc != 0 ? rc
           : x->stage != NULL
               ? exchange_mpi_blocks(x, x->sent, step, x->received, step, (int)bytes)
               : exchange_mpi_blocks(x, src + at, all, x->received, step, (int)bytes);
}

static int mpi_reduce_scatter(struct comm *c, struct kstream *ks, enum dtype dt, const void *src,
                              void *dst, int64_t n)
{
    struct mpi_comm *x = (struct mpi_comm *)c;
    size_t size = dtype_bytes(dt), step = PIECE_BYTES / (size_t)c->size / size * size;
    size_t all = (size_t)n * size;
    int rc = take_room(x);

    for (size_t at = 0; rc == 0 && at < all; at += step) {
        size_t bytes = all - at < step ? all - at : step;
        char *sum = x->stage != NULL ? x->sent : (char *)dst + at;

        rc = trade(x, ks, src, all, at, step, bytes);
        if (rc == 0) {
            add_up(dt, sum, x->received, step / size, (int)(bytes / size), c->size);
        }
        if (rc == 0 && x->stage != NULL) {
            rc = x->k->mem_put(ks, (char *)dst + at, sum, bytes);
        }
    }
    return rc;
}

/* Device memory, through the host's. */
static int gather_staged(struct mpi_comm *x, struct kstream *ks, const char *src, char *dst,
                         size_t all)
{
    size_t step = PIECE_BYTES / (size_t)x->base.size;
    int rc = 0;

    for (size_t at = 0; rc == 0 && at < all; at += step) {
        size_t bytes = all - at < step ? all - at : step;
        char *mine = x->received + (size_t)x->base.rank * step;

        rc = x->k->mem_get(ks, mine, src + at, bytes);
        rc = rc != 0 ? rc : exchange_mpi_blocks(x, mine, 0, x->received, step, (int)bytes);
        for (int p = 0; rc == 0 && p < x->base.size; p++) {
            rc = x->k->mem_put(ks, dst + (size_t)p * all + at, x->received + (size_t)p * step,
                               bytes);
        }
    }
    return rc;
}

static int mpi_allgather(struct comm *c, struct kstream *ks, enum dtype dt, const void *src,
                         void *dst, int64_t n)
{
    struct mpi_comm *x = (struct mpi_comm *)c;
    size_t all = (size_t)n * dtype_bytes(dt);
    char *mine = (char *)dst + (size_t)c->rank * all;
    int rc = take_room(x);

    if (rc == 0 && x->stage != NULL) {
        return gather_staged(x, ks, src, dst, all);
    }
    if (rc == 0 && mine != src && all > 0) {
        memcpy(mine, src, all);
    }
    for (size_t at = 0; rc == 0 && at < all; at += DIRECT_BYTES) {
        size_t bytes = all - at < DIRECT_BYTES ? all - at : DIRECT_BYTES;

        rc = exchange_mpi_blocks(x, mine + at, 0, (char *)dst + at, all, (int)bytes);
    }
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
    ordered_close(&x->sums);
    free(x->stage);
    free(x->received);
    free(x->sent);
    free(x->request);
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
               : open_group(x->k, group, x->ordered, out);
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
    x->ordered = ordered;
    *out = &x->base;
    if (!on_host && x->stage == NULL) {
        mpi_close(out);
        return E_NOSPACE;
    }
    return 0;
}

/* Sums in the order of the ranks are other calls of MPI's: ranks that differ would wait for each
 * other. */
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
        snprintf(why, room,
                 "only some ranks were started with --deterministic; give it to all or none");
        return E_CONFIG;
    }
    rc = open_group(k, MPI_COMM_WORLD, ordered, out);
    if (rc != 0) {
        snprintf(why, room, "not enough memory for the MPI exchange buffers");
    }
    return rc;
}
