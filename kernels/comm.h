/* comm.h - collective communication between the ranks of one model.
 *
 * self is one rank alone; mpi (Open MPI) connects CPUs and copies device memory through the host;
 * nccl connects GPUs on the caller's stream. mpi and nccl are shared objects opened at run time.
 *
 * order    every rank makes the same calls in the same order; each is an entry of the flight
 *          record (flight.h)
 * owns     comm_close() leaves the group; the operations given to comm_open_*() are borrowed
 * errors   E_NETWORK, E_TIMEOUT when the ranks lost each other, E_CUDA or E_SICK when the GPU
 *          failed: the group cannot be used any more then. E_CONFIG when the library refuses the
 *          call itself, E_UNSUPPORTED a type, E_NOSPACE: no memory
 */
#ifndef KERNELS_COMM_H
#define KERNELS_COMM_H

#include "kernels/flight.h"
#include "kernels/ops.h"

/* The functions of a communication library. Callers use the functions below, which keep the
 * flight record. */
struct comm {
    const char *name; /* "self", "mpi", "nccl" */
    int rank;
    int size;
    char facts[200]; /* for people: version and transport; "" if there is nothing to say */
    /* why two groups must not run collectives at the same time; "" when they may */
    char one_group[100];
    struct flight *flight; /* a group made by comm_split() has its parent's */
    struct comm *parent;
    /* Groups made by comm_split() and not closed yet; NULL: none. comm_abort() may be called from
     * another thread. */
    struct comm *_Atomic part[2];
    uint64_t seq; /* the flight record's number of the operation that is being posted */
    /* buf[i] = sum over ranks of buf[i], in device memory; the same bits on every rank. mpi adds
     * 16-bit types in f32, in the order of the ranks. */
    int (*post_allreduce)(struct comm *c, struct kstream *ks, enum dtype dt, void *buf, int64_t n);
    /* dst[i] = sum over ranks of src[rank * n + i]: each rank gets its piece of n elements. dst
     * is src + rank * n, or elsewhere (for a single rank: src). mpi adds in the order of the
     * ranks, 16-bit types in f32. */
    int (*post_reduce_scatter)(struct comm *c, struct kstream *ks, enum dtype dt, const void *src,
                               void *dst, int64_t n);
    /* dst[r * n + i] = src[i] of rank r. src is dst + rank * n, or elsewhere (for a single rank:
     * dst). */
    int (*post_allgather)(struct comm *c, struct kstream *ks, enum dtype dt, const void *src,
                          void *dst, int64_t n);
    int (*post_barrier)(struct comm *c, struct kstream *ks);
    /* The ranks of one color become a new group, in their present order. All ranks call it
     * together; close it before its parent. */
    int (*split)(struct comm *c, int color, struct comm **out);
    /* NULL: operations are complete when they return. Else returns the number of the oldest that
     * is not known to be complete, 0 when all are; or E_NETWORK when the group is lost. */
    int (*poll)(struct comm *c, uint64_t *oldest);
    /* Stops running operations, from any thread; may never return. NULL: there is nothing to
     * stop. */
    void (*abort)(struct comm *c);
    /* The library's message when it failed, for people; NULL: it has none. */
    const char *(*fault)(struct comm *c);
    void (*close)(struct comm **cp);
};

int comm_allreduce(struct comm *c, struct kstream *ks, enum dtype dt, void *buf, int64_t n);
int comm_reduce_scatter(struct comm *c, struct kstream *ks, enum dtype dt, const void *src,
                        void *dst, int64_t n);
int comm_allgather(struct comm *c, struct kstream *ks, enum dtype dt, const void *src, void *dst,
                   int64_t n);
int comm_barrier(struct comm *c, struct kstream *ks);
/* At most two groups of one parent at a time. */
int comm_split(struct comm *c, int color, struct comm **out);
/* Lets the library allocate its memory, which is as much as its algorithms for small and for
 * large sums need, before the rest is planned. Sets `facts`. */
int comm_warm_up(struct comm *c, const struct kops *k, struct kstream *ks);
/* Waits for the stream become waits for the comm's operations on it: they complete the flight
 * record's entries, and fail with E_NETWORK when the group is lost. */
void comm_watch(struct comm *c, const struct kops *k, struct kstream *ks);
/* Stops running operations in the group and its parts, from any thread; may never return. */
void comm_abort(struct comm *c);
/* "" when the library has no message. */
const char *comm_fault(struct comm *c);
/* Leaves the group. Not after an error: after a failure this may hang. */
void comm_close(struct comm **cp); /* NULL is fine */

enum { COMM_ID_BYTES = 128 };

int comm_open_self(struct comm **out);
/* The launcher has started us under MPI, which knows rank and size. `ordered`: sums are made in
 * the order of the ranks, so that their bits depend neither on MPI's algorithms nor on the size
 * of the sum; takes two or three times as long. */
int comm_open_mpi(const struct kops *k, bool ordered, struct comm **out, struct err *e);
/* Rank 0 makes the id, and all others get it from rank 0 (rendezvous) before they open. E_TIMEOUT
 * after timeout_ms. */
int comm_make_nccl_id(uint8_t id[COMM_ID_BYTES], struct err *e);
int comm_open_nccl(const uint8_t id[COMM_ID_BYTES], int rank, int size, uint64_t timeout_ms,
                   struct comm **out, struct err *e);

#endif
