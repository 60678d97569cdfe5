/* comm.h - ranks that work on one model: what they tell each other.
 *
 * self is one rank alone; mpi (Open MPI) speaks between CPUs and stages device memory through the host; nccl speaks
 * between GPUs on the caller's stream. mpi and nccl are shared objects opened at run time.
 *
 * order    every rank makes the same calls in the same order
 * owns     comm_close() leaves the group; the operations given to comm_open_*() are borrowed
 * errors   0, or E_NETWORK when the library gave up: the group is then of no more use
 */
#ifndef KERNELS_COMM_H
#define KERNELS_COMM_H

#include "kernels/ops.h"

struct comm {
    const char *name; /* "self", "mpi", "nccl" */
    int rank;
    int size;
    /* buf[i] = sum over ranks of buf[i], in device memory; the same bits on every rank. mpi has no 16-bit types. */
    int (*allreduce)(struct comm *c, struct kstream *ks, enum dtype dt, void *buf, int64_t n);
    /* dst[i] = sum over ranks of src[rank * n + i]: each rank gets its piece of n elements. dst is src + rank * n, or elsewhere
     * (one rank alone: src). mpi adds in the order of the ranks. */
    int (*reduce_scatter)(struct comm *c, struct kstream *ks, enum dtype dt, const void *src,
                          void *dst, int64_t n);
    /* dst[r * n + i] = src[i] of rank r. src is dst + rank * n, or elsewhere (one rank alone: dst). */
    int (*allgather)(struct comm *c, struct kstream *ks, enum dtype dt, const void *src, void *dst,
                     int64_t n);
    int (*barrier)(struct comm *c, struct kstream *ks);
    /* The ranks of one color become a group of their own, in the order they have here. All ranks call it together; close it before
     * its parent. */
    int (*split)(struct comm *c, int color, struct comm **out);
    void (*close)(struct comm **cp);
};

enum { COMM_ID_BYTES = 128 };

int comm_open_self(struct comm **out);
/* The launcher has started us under MPI: it knows rank and size. `ordered`: sums are made in the order of the ranks, so that
 * their bits depend neither on MPI's algorithms nor on how much is summed at once; two or three times the time. */
int comm_open_mpi(const struct kops *k, bool ordered, struct comm **out, struct err *e);
/* Rank 0 makes the id, all others get it from rank 0 (rendezvous) before they open. */
int comm_make_nccl_id(uint8_t id[COMM_ID_BYTES], struct err *e);
int comm_open_nccl(const uint8_t id[COMM_ID_BYTES], int rank, int size, struct comm **out,
                   struct err *e);

static inline void comm_close(struct comm **cp)
{
    if (*cp != NULL) {
        (*cp)->close(cp);
    }
}

#endif
