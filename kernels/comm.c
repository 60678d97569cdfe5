#include "kernels/comm.h"

#include "common/base/check.h"

/* After an operation was posted, with what it returned. */
static int posted(struct comm *c, int rc)
{
    if (rc == 0) {
        flight_returned(c->flight, c->seq);
    }
    if (rc == 0 && c->poll == NULL) {
        flight_done(c->flight, c->seq);
    }
    return rc;
}

int comm_allreduce(struct comm *c, struct kstream *ks, enum dtype dt, void *buf, int64_t n)
{
    c->seq = flight_post(c->flight, FLIGHT_ALLREDUCE, dt, n, c->name);
    return posted(c, c->post_allreduce(c, ks, dt, buf, n));
}

int comm_reduce_scatter(struct comm *c, struct kstream *ks, enum dtype dt, const void *src,
                        void *dst, int64_t n)
{
    c->seq = flight_post(c->flight, FLIGHT_REDUCE_SCATTER, dt, n * c->size, c->name);
    return posted(c, c->post_reduce_scatter(c, ks, dt, src, dst, n));
}

int comm_allgather(struct comm *c, struct kstream *ks, enum dtype dt, const void *src, void *dst,
                   int64_t n)
{
    c->seq = flight_post(c->flight, FLIGHT_ALLGATHER, dt, n * c->size, c->name);
    return posted(c, c->post_allgather(c, ks, dt, src, dst, n));
}

int comm_split(struct comm *c, int color, struct comm **out)
{
    int slot = c->part[0] != NULL, rc;

    CHECK(c->part[slot] == NULL);
    c->seq = flight_post(c->flight, FLIGHT_SPLIT, DT_F32, 0, c->name);
    rc = c->split(c, color, out);
    if (rc == 0) {
        flight_returned(c->flight, c->seq);
        flight_done(c->flight, c->seq); /* all before it were waited for */
        (*out)->flight = c->flight;
        (*out)->parent = c;
        c->part[slot] = *out;
    }
    return rc;
}

/* It waits, so all before it are complete when it returns. */
int comm_barrier(struct comm *c, struct kstream *ks)
{
    int rc;

    c->seq = flight_post(c->flight, FLIGHT_BARRIER, DT_F32, 0, c->name);
    rc = c->post_barrier(c, ks);
    if (rc == 0) {
        flight_returned(c->flight, c->seq);
        flight_done(c->flight, c->seq);
    }
    return rc;
}

int comm_warm_up(struct comm *c, const struct kops *k, struct kstream *ks)
{
    static const int64_t sizes[] = {1, 1 << 14, 1 << 20, 1 << 24};
    void *x = NULL;
    int rc = 0;

    if (c->poll == NULL) {
        return 0; /* nothing of it lies in the device's memory */
    }
    rc = k->mem_alloc(&x, (size_t)sizes[ARRAY_LEN(sizes) - 1] * sizeof(float));
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(sizes); i++) {
        int64_t n = sizes[i] / c->size;
        float *mine = (float *)x + c->rank * n;

        rc = comm_allreduce(c, ks, DT_F32, x, sizes[i]);
        if (n > 0 && c->post_reduce_scatter != NULL) {
            rc = rc != 0 ? rc : comm_reduce_scatter(c, ks, DT_F32, x, mine, n);
            rc = rc != 0 ? rc : comm_allgather(c, ks, DT_F32, mine, x, n);
        }
    }
    rc = rc != 0 ? rc : k->stream_sync(ks);
    if (rc == 0) {
        k->mem_free(x);
    }
    return rc;
}

/* Of the group and its parts, whose operations are on several streams: the oldest number that is
 * not known to be complete, 0 when all are, and the last one that was posted. */
static int poll_all(struct comm *c, uint64_t *oldest, uint64_t *last)
{
    uint64_t here = 0;
    int rc = c->poll != NULL ? c->poll(c, &here) : 0;

    *oldest = *oldest == 0 || (here != 0 && here < *oldest) ? here : *oldest;
    *last = c->seq > *last ? c->seq : *last;
    for (int i = 0; rc == 0 && i < 2; i++) {
        rc = c->part[i] != NULL ? poll_all(c->part[i], oldest, last) : 0;
    }
    return rc;
}

static int poll_comm(void *arg)
{
    struct comm *c = arg;
    uint64_t oldest = 0, last = 0;
    int rc = poll_all(c, &oldest, &last);

    if (rc == 0) {
        flight_done(c->flight, oldest != 0 ? oldest - 1 : last);
    }
    return rc;
}

/* Where operations are complete when they return, nothing can hang behind them. */
void comm_watch(struct comm *c, const struct kops *k, struct kstream *ks)
{
    if (c->poll != NULL) {
        k->stream_watch(ks, poll_comm, c);
    }
}

void comm_abort(struct comm *c)
{
    for (int i = 0; i < 2; i++) {
        if (c->part[i] != NULL) {
            comm_abort(c->part[i]);
        }
    }
    if (c->abort != NULL) {
        c->abort(c);
    }
}

const char *comm_fault(struct comm *c)
{
    const char *said = c->fault != NULL ? c->fault(c) : "";

    for (int i = 0; said[0] == '\0' && i < 2; i++) {
        said = c->part[i] != NULL ? comm_fault(c->part[i]) : "";
    }
    return said;
}

void comm_close(struct comm **cp)
{
    struct comm *c = *cp, *parent;
    struct flight *f;

    if (c == NULL) {
        return;
    }
    f = c->flight;
    parent = c->parent;
    CHECK(c->part[0] == NULL && c->part[1] == NULL);
    for (int i = 0; parent != NULL && i < 2; i++) {
        parent->part[i] = parent->part[i] == c ? NULL : parent->part[i];
    }
    c->close(cp);
    if (parent == NULL) {
        flight_close(&f);
    }
}
