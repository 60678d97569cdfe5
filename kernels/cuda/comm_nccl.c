#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "kernels/cuda/stream.h"
#include "kernels/plugin.h"

struct nccl_comm {
    struct comm base;
    ncclComm_t comm;
    float *token; /* what a barrier adds up */
};

plugin_nccl_fn plugin_nccl;

_Static_assert(sizeof(ncclUniqueId) == COMM_ID_BYTES, "the id travels as COMM_ID_BYTES");

static ncclDataType_t type_of(enum dtype dt)
{
    switch (dt) {
    case DT_F32:
        return ncclFloat;
    case DT_F64:
        return ncclDouble;
    case DT_BF16:
        return ncclBfloat16;
    case DT_F16:
        return ncclHalf;
    }
    return ncclNumTypes;
}

static int nccl_allreduce(struct comm *c, struct kstream *ks, enum dtype dt, void *buf, int64_t n)
{
    struct nccl_comm *x = (struct nccl_comm *)c;

    return ncclAllReduce(buf, buf, (size_t)n, type_of(dt), ncclSum, x->comm, ks->stream) ==
                   ncclSuccess
               ? 0
               : E_NETWORK;
}

static int nccl_reduce_scatter(struct comm *c, struct kstream *ks, enum dtype dt, const void *src,
                               void *dst, int64_t n)
{
    struct nccl_comm *x = (struct nccl_comm *)c;

    return ncclReduceScatter(src, dst, (size_t)n, type_of(dt), ncclSum, x->comm, ks->stream) ==
                   ncclSuccess
               ? 0
               : E_NETWORK;
}

static int nccl_allgather(struct comm *c, struct kstream *ks, enum dtype dt, const void *src,
                          void *dst, int64_t n)
{
    struct nccl_comm *x = (struct nccl_comm *)c;

    return ncclAllGather(src, dst, (size_t)n, type_of(dt), x->comm, ks->stream) == ncclSuccess
               ? 0
               : E_NETWORK;
}

static int nccl_barrier(struct comm *c, struct kstream *ks)
{
    int rc = nccl_allreduce(c, ks, DT_F32, ((struct nccl_comm *)c)->token, 1);

    return rc == 0 && cudaStreamSynchronize(ks->stream) != cudaSuccess ? E_CUDA : rc;
}

static void nccl_close(struct comm **cp)
{
    struct nccl_comm *x = (struct nccl_comm *)*cp;

    *cp = NULL;
    if (x->comm != NULL) {
        ncclCommDestroy(x->comm);
    }
    cudaFree(x->token);
    free(x);
}

static int make_id(uint8_t *id, char *why, size_t room)
{
    ncclUniqueId unique;
    ncclResult_t rc = ncclGetUniqueId(&unique);

    if (rc != ncclSuccess) {
        snprintf(why, room, "%s", ncclGetErrorString(rc));
        return E_NETWORK;
    }
    memcpy(id, &unique, sizeof unique);
    return 0;
}

int plugin_nccl(uint8_t *id, int rank, int size, struct comm **out, char *why, size_t room)
{
    struct nccl_comm *x;
    ncclUniqueId unique;
    struct comm *base;
    ncclResult_t rc;
    cudaError_t cuda;

    if (out == NULL) {
        return make_id(id, why, room);
    }
    *out = NULL;
    x = calloc(1, sizeof *x);
    if (x == NULL) {
        snprintf(why, room, "no memory");
        return E_NOSPACE;
    }
    base = &x->base;
    *base = (struct comm){.name = "nccl",
                          .rank = rank,
                          .size = size,
                          .allreduce = nccl_allreduce,
                          .reduce_scatter = nccl_reduce_scatter,
                          .allgather = nccl_allgather,
                          .barrier = nccl_barrier,
                          .close = nccl_close};
    memcpy(&unique, id, sizeof unique);
    rc = ncclCommInitRank(&x->comm, size, unique, rank);
    if (rc != ncclSuccess) {
        snprintf(why, room, "%s: %.100s", ncclGetErrorString(rc), ncclGetLastError(NULL));
        nccl_close(&base);
        return E_NETWORK;
    }
    cuda = cudaMalloc((void **)&x->token, sizeof *x->token);
    cuda = cuda != cudaSuccess ? cuda : cudaMemset(x->token, 0, sizeof *x->token);
    if (cuda != cudaSuccess) {
        snprintf(why, room, "%s", cudaGetErrorString(cuda));
        nccl_close(&base);
        return E_CUDA;
    }
    *out = base;
    return 0;
}
