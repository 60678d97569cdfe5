#include <stdlib.h>

#include "kernels/comm.h"
#include "common/base/err.h"

static int self_allreduce(struct comm *c, struct kstream *ks, enum dtype dt, void *buf, int64_t n)
{
    (void)c;
    (void)ks;
    (void)dt;
    (void)buf;
    (void)n;
    return 0;
}

/* Of reduce_scatter and allgather: the only piece is the whole, in place. */
static int self_pieces(struct comm *c, struct kstream *ks, enum dtype dt, const void *src,
                       void *dst, int64_t n)
{
    (void)c;
    (void)ks;
    (void)dt;
    (void)n;
    CHECK(src == dst);
    return 0;
}

static int self_barrier(struct comm *c, struct kstream *ks)
{
    (void)c;
    (void)ks;
    return 0;
}

static struct comm *self_new(void);

static int self_split(struct comm *c, int color, struct comm **out)
{
    (void)c;
    (void)color;
    *out = self_new();
    return 0;
}

static void self_close(struct comm **cp)
{
    free(*cp);
    *cp = NULL;
}

static struct comm *self_new(void)
{
    struct comm *c = NEW(struct comm);

    *c = (struct comm){.name = "self",
                       .size = 1,
                       .post_allreduce = self_allreduce,
                       .post_reduce_scatter = self_pieces,
                       .post_allgather = self_pieces,
                       .post_barrier = self_barrier,
                       .split = self_split,
                       .close = self_close};
    return c;
}

int comm_open_self(struct comm **out)
{
    *out = self_new();
    (*out)->flight = flight_open();
    return 0;
}
