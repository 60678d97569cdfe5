/* NCCL, in a way that does not hang with it: the communicator is non-blocking, so that no call of
 * NCCL's waits for a peer, and every wait asks whether the communicator is still whole.
 *
 * A communicator that has failed is aborted, never destroyed: ncclCommDestroy() waits for its
 * peers, and cudaFree() for its kernel. Abort comes from the watchdog's thread, while no other
 * thread may be in a call of NCCL's: `inside` and `dying` see to that. */
#include <nccl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/os/clock.h"
#include "kernels/cuda/fault.h"
#include "kernels/cuda/nccl_log.h"
#include "kernels/cuda/stream.h"
#include "kernels/plugin.h"

enum {
    MARKS = 64,
    PAUSE_NS = 50000,
    ABORT_PATIENCE_MS = 1000,
    CLOSE_MS = 30000,
    LAUNCH_ORDER_VERSION = 22600, /* the first with NCCL_LAUNCH_ORDER_IMPLICIT */
    SPLIT_MS = 600000
};

/* An event behind one or more collectives, and the first one's number. */
struct mark {
    cudaEvent_t event;
    uint64_t seq;
};

struct nccl_comm {
    struct comm base;
    ncclComm_t comm;
    float *token; /* what a barrier adds up */
    /* Collectives that are not known to be complete, oldest first: mark[first % MARKS] up to
     * mark[last % MARKS]. */
    struct mark mark[MARKS];
    unsigned first, last;
    bool connected;      /* the first collective is complete: the log tells how */
    char said[200];      /* what failed, in NCCL's words */
    ncclResult_t result; /* the call's */
    atomic_bool inside, dying;
};

plugin_nccl_fn plugin_nccl;

_Static_assert(sizeof(ncclUniqueId) == COMM_ID_BYTES, "the id travels as COMM_ID_BYTES");

static ncclDataType_t nccl_type_of(enum dtype dt)
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

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

/* --- calls, and what they say ----------------------------------------------------------------- */

/* The main thread's calls are between these. After the watchdog has begun to abort, it stays
 * here. */
static void enter_nccl_call(struct nccl_comm *x)
{
    atomic_store(&x->inside, true);
    while (atomic_load(&x->dying)) {
        atomic_store(&x->inside, false);
        pause();
    }
}

static void leave_nccl_call(struct nccl_comm *x)
{
    atomic_store(&x->inside, false);
}

/* What repeats itself on every start, and what may go well on the next. */
static int code_of_nccl(ncclResult_t rc)
{
    return rc == ncclInvalidArgument || rc == ncclInvalidUsage ? E_CONFIG : E_NETWORK;
}

/* Keeps the first words, with those of the call or the log that say more. */
static int failed(struct nccl_comm *x, ncclResult_t rc)
{
    const char *more = ncclGetLastError(x->comm);
    char warning[120] = "";

    if (x->said[0] == '\0') {
        x->result = rc;
        if (more == NULL || more[0] == '\0') {
            nccl_log_warning(warning, sizeof warning);
            more = warning;
        }
        snprintf(x->said, sizeof x->said, "%s%s%.120s", ncclGetErrorString(rc),
                 more[0] != '\0' ? ": " : "", more);
    }
    return code_of_nccl(rc);
}

static int device_failed(struct nccl_comm *x, cudaError_t rc)
{
    if (x->said[0] == '\0') {
        snprintf(x->said, sizeof x->said, "%s (%d): %s", cudaGetErrorName(rc), (int)rc,
                 cudaGetErrorString(rc));
    }
    return fault_code(rc);
}

/* Until NCCL has done what it was asked for, on the host's side: it may do that in a thread of its
 * own. */
static int wait_for_nccl(struct nccl_comm *x, ncclResult_t rc, uint64_t deadline_ms)
{
    while (rc == ncclSuccess || rc == ncclInProgress) {
        ncclResult_t asked, state = ncclSuccess;

        enter_nccl_call(x);
        asked = ncclCommGetAsyncError(x->comm, &state);
        leave_nccl_call(x);
        rc = asked != ncclSuccess ? asked : state;
        if (rc == ncclSuccess) {
            return 0;
        }
        if (rc == ncclInProgress && clock_now_ms() >= deadline_ms) {
            snprintf(x->said, sizeof x->said, "the ranks did not connect in time");
            return E_TIMEOUT;
        }
        if (rc == ncclInProgress) {
            nap();
        }
    }
    return failed(x, rc);
}

/* --- collectives ------------------------------------------------------------------------------ */

/* Without a free mark the youngest moves on: what is behind it is complete when it is. */
static int mark_here(struct nccl_comm *x, struct kstream *ks)
{
    bool free_one = x->last - x->first < MARKS;
    struct mark *m = &x->mark[(free_one ? x->last : x->last - 1) % MARKS];
    cudaError_t rc = cudaEventRecord(m->event, ks->stream);

    if (free_one) {
        x->last++;
        m->seq = x->base.seq;
    }
    return rc == cudaSuccess ? 0 : device_failed(x, rc);
}

/* After a call that posts an operation, from within enter_nccl_call(). */
static int posted(struct nccl_comm *x, struct kstream *ks, ncclResult_t rc)
{
    int done;

    leave_nccl_call(x);
    done = wait_for_nccl(x, rc, UINT64_MAX); /* the watchdog knows how long this may take */
    return done != 0 ? done : mark_here(x, ks);
}

static int nccl_allreduce(struct comm *c, struct kstream *ks, enum dtype dt, void *buf, int64_t n)
{
    struct nccl_comm *x = (struct nccl_comm *)c;
    ncclResult_t rc;

    enter_nccl_call(x);
    rc = ncclAllReduce(buf, buf, (size_t)n, nccl_type_of(dt), ncclSum, x->comm, ks->stream);
    return posted(x, ks, rc);
}

static int nccl_poll(struct comm *c, uint64_t *oldest)
{
    struct nccl_comm *x = (struct nccl_comm *)c;
    ncclResult_t asked, state = ncclSuccess;
    cudaError_t got = cudaSuccess;
    unsigned before = x->first;

    while (x->first != x->last && got == cudaSuccess) {
        got = cudaEventQuery(x->mark[x->first % MARKS].event);
        x->first += got == cudaSuccess;
    }
    (void)cudaGetLastError(); /* not ready is no error */
    if (got != cudaSuccess && got != cudaErrorNotReady) {
        return device_failed(x, got);
    }
    *oldest = x->first != x->last ? x->mark[x->first % MARKS].seq : 0;
    if (x->first != before && !x->connected) {
        x->connected = true;
        nccl_log_facts(c->facts, sizeof c->facts);
    }
    enter_nccl_call(x);
    asked = ncclCommGetAsyncError(x->comm, &state);
    leave_nccl_call(x);
    state = asked != ncclSuccess ? asked : state;
    return state == ncclSuccess || state == ncclInProgress ? 0 : failed(x, state);
}

static int nccl_reduce_scatter(struct comm *c, struct kstream *ks, enum dtype dt, const void *src,
                               void *dst, int64_t n)
{
    struct nccl_comm *x = (struct nccl_comm *)c;
    ncclResult_t rc;

    enter_nccl_call(x);
    rc = ncclReduceScatter(src, dst, (size_t)n, nccl_type_of(dt), ncclSum, x->comm, ks->stream);
    return posted(x, ks, rc);
}

static int nccl_allgather(struct comm *c, struct kstream *ks, enum dtype dt, const void *src,
                          void *dst, int64_t n)
{
    struct nccl_comm *x = (struct nccl_comm *)c;
    ncclResult_t rc;

    enter_nccl_call(x);
    rc = ncclAllGather(src, dst, (size_t)n, nccl_type_of(dt), x->comm, ks->stream);
    return posted(x, ks, rc);
}

static int nccl_barrier(struct comm *c, struct kstream *ks)
{
    struct nccl_comm *x = (struct nccl_comm *)c;
    uint64_t oldest = 0;
    int rc = nccl_allreduce(c, ks, DT_F32, x->token, 1);

    while (rc == 0 && x->first != x->last) {
        rc = nccl_poll(c, &oldest);
        if (rc == 0 && x->first != x->last) {
            nap();
        }
    }
    return rc;
}

/* --- the end ---------------------------------------------------------------------------------- */

/* Another thread's. While the main thread is in a call of NCCL's nothing may be aborted: then the
 * process just ends. */
static void nccl_abort(struct comm *c)
{
    struct nccl_comm *x = (struct nccl_comm *)c;
    uint64_t until_ms = clock_now_ms() + ABORT_PATIENCE_MS;

    atomic_store(&x->dying, true);
    while (atomic_load(&x->inside) && clock_now_ms() < until_ms) {
        nap();
    }
    if (!atomic_load(&x->inside)) {
        ncclCommAbort(x->comm);
    }
}

static const char *nccl_fault(struct comm *c)
{
    return ((struct nccl_comm *)c)->said;
}

static void nccl_close(struct comm **cp)
{
    struct nccl_comm *x = (struct nccl_comm *)*cp;

    ncclResult_t rc = ncclCommFinalize(x->comm);

    *cp = NULL;
    if (wait_for_nccl(x, rc, clock_now_ms() + CLOSE_MS) != 0) {
        return; /* a peer is gone: what is left goes with the process */
    }
    ncclCommDestroy(x->comm);
    for (int i = 0; i < MARKS; i++) {
        cudaEventDestroy(x->mark[i].event);
    }
    cudaFree(x->token);
    free(x);
}

/* --- the beginning ---------------------------------------------------------------------------- */

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

static int join_nccl_ranks(struct nccl_comm *x, const uint8_t *id, uint64_t timeout_ms)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    uint64_t deadline_ms = clock_now_ms() + timeout_ms;
    ncclUniqueId unique;
    ncclResult_t rc;

    memcpy(&unique, id, sizeof unique);
    config.blocking = 0;
    rc = ncclCommInitRankConfig(&x->comm, x->base.size, unique, x->base.rank, &config);
    return wait_for_nccl(x, rc, deadline_ms);
}

static int take_memory(struct nccl_comm *x)
{
    cudaError_t rc = cudaMalloc((void **)&x->token, sizeof *x->token);

    rc = rc != cudaSuccess ? rc : cudaMemset(x->token, 0, sizeof *x->token);
    for (int i = 0; rc == cudaSuccess && i < MARKS; i++) {
        rc = cudaEventCreateWithFlags(&x->mark[i].event, cudaEventDisableTiming);
    }
    rc = rc != cudaSuccess ? rc : cudaDeviceSynchronize();
    return rc == cudaSuccess ? 0 : device_failed(x, rc);
}

static int nccl_split(struct comm *c, int color, struct comm **out);

/* Without its communicator and its memory yet. */
static struct nccl_comm *open_comm(int rank, int size)
{
    struct nccl_comm *x = calloc(1, sizeof *x);

    if (x != NULL) {
        x->base = (struct comm){.name = "nccl",
                                .rank = rank,
                                .size = size,
                                .post_allreduce = nccl_allreduce,
                                .post_reduce_scatter = nccl_reduce_scatter,
                                .post_allgather = nccl_allgather,
                                .post_barrier = nccl_barrier,
                                .split = nccl_split,
                                .poll = nccl_poll,
                                .abort = nccl_abort,
                                .fault = nccl_fault,
                                .close = nccl_close};
    }
    return x;
}

static int nccl_split(struct comm *c, int color, struct comm **out)
{
    struct nccl_comm *all = (struct nccl_comm *)c, *x = open_comm(0, 0);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t rc;
    int done = x == NULL ? E_NOSPACE : take_memory(x);

    *out = NULL;
    if (done != 0) {
        return done;
    }
    config.blocking = 0;
    enter_nccl_call(all);
    rc = ncclCommSplit(all->comm, color, c->rank, &x->comm, &config);
    leave_nccl_call(all);
    done = wait_for_nccl(all, rc, clock_now_ms() + SPLIT_MS);
    done = done != 0 ? done : wait_for_nccl(x, ncclSuccess, clock_now_ms() + SPLIT_MS);
    if (done == 0) {
        rc = ncclCommUserRank(x->comm, &x->base.rank);
        rc = rc != ncclSuccess ? rc : ncclCommCount(x->comm, &x->base.size);
        done = rc == ncclSuccess ? 0 : failed(x, rc);
    }
    *out = done == 0 ? &x->base : NULL;
    return done;
}

/* On one GPU two kernels that wait for their peers can keep each other out, unless all ranks begin
 * them in one order. */
static void judge_order(struct nccl_comm *x)
{
    const char *order = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    char version[24];

    if (nccl_log_version(version, sizeof version) < LAUNCH_ORDER_VERSION) {
        snprintf(
            x->base.one_group, sizeof x->base.one_group,
            "NCCL %s does not start them in the same order on all ranks; install 2.26 or newer",
            version);
    } else if (order != NULL && strcmp(order, "0") == 0) {
        snprintf(x->base.one_group, sizeof x->base.one_group,
                 "NCCL_LAUNCH_ORDER_IMPLICIT=0 lets ranks start them in any order; unset it");
    }
}

/* What has failed is left as it is: its process ends, and to free it could hang. */
int plugin_nccl(uint8_t *id, int rank, int size, uint64_t timeout_ms, struct comm **out, char *why,
                size_t room)
{
    struct nccl_comm *x;
    int rc;

    nccl_log_begin();
    if (out == NULL) {
        return make_id(id, why, room);
    }
    *out = NULL;
    x = open_comm(rank, size);
    if (x == NULL) {
        snprintf(why, room, "not enough memory");
        return E_NOSPACE;
    }
    rc = take_memory(x);
    rc = rc != 0 ? rc : join_nccl_ranks(x, id, timeout_ms);
    if (rc != 0) {
        snprintf(why, room, "%s", x->said);
        /* It may have waited in vain for a peer that has failed. */
        return x->result == ncclRemoteError ? E_TIMEOUT : rc;
    }
    judge_order(x);
    *out = &x->base;
    return 0;
}
