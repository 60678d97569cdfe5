/* team.h - ranks as threads of one process, for tests: a double of comm.h whose sums are in the
 * order of the ranks. */
#ifndef TESTS_UNIT_AGENT_TRAIN_TEAM_H
#define TESTS_UNIT_AGENT_TRAIN_TEAM_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/comm.h"
#include "kernels/float16.h"

enum { MOST_RANKS = 8 };

struct team {
    pthread_barrier_t meet;
    const char *src[MOST_RANKS];
};

struct member {
    struct comm base;
    struct team *team;
    double sent_bytes; /* as rings would, by this rank */
    double off; /* sums of this group are off by so much of themselves: another order of adding */
};

static float team_float(enum dtype dt, const char *at)
{
    float f;
    uint16_t h;

    if (dt == DT_F32) {
        memcpy(&f, at, sizeof f);
        return f;
    }
    memcpy(&h, at, sizeof h);
    return dt == DT_BF16 ? bf16_widen(h) : f16_widen(h);
}

/* out[i] = sum of every rank's src[from + i]. */
static void team_sum(struct member *x, enum dtype dt, const void *src, int64_t from, void *out,
                     int64_t n)
{
    char *whole = mem_new((size_t)n * dtype_bytes(dt) + 1);

    x->team->src[x->base.rank] = src;
    pthread_barrier_wait(&x->team->meet);
    for (int64_t i = 0; i < n; i++) {
        double d = 0;
        float f = 0;
        uint16_t h;

        for (int r = 0; r < x->base.size; r++) {
            const char *at = x->team->src[r] + (size_t)(from + i) * dtype_bytes(dt);

            d = dt == DT_F64 ? d + *(const double *)(const void *)at : d;
            f += dt == DT_F64 ? 0 : team_float(dt, at);
        }
        d += d * x->off;
        f += f * (float)x->off;
        h = dt == DT_BF16 ? bf16_round(f) : f16_round(f);
        memcpy(whole + (size_t)i * dtype_bytes(dt),
               dt == DT_F64   ? (void *)&d
               : dt == DT_F32 ? (void *)&f
                              : (void *)&h,
               dtype_bytes(dt));
    }
    pthread_barrier_wait(&x->team->meet); /* nobody reads any more */
    memcpy(out, whole, (size_t)n * dtype_bytes(dt));
    free(whole);
}

static void team_count(struct comm *c, int times, int64_t bytes)
{
    ((struct member *)c)->sent_bytes += times * (double)bytes * (c->size - 1) / c->size;
}

static int team_allreduce(struct comm *c, struct kstream *ks, enum dtype dt, void *buf, int64_t n)
{
    (void)ks;
    team_count(c, 2, n * (int64_t)dtype_bytes(dt));
    team_sum((struct member *)c, dt, buf, 0, buf, n);
    return 0;
}

static int team_reduce_scatter(struct comm *c, struct kstream *ks, enum dtype dt, const void *src,
                               void *dst, int64_t n)
{
    (void)ks;
    team_count(c, 1, c->size * n * (int64_t)dtype_bytes(dt));
    team_sum((struct member *)c, dt, src, c->rank * n, dst, n);
    return 0;
}

static int team_allgather(struct comm *c, struct kstream *ks, enum dtype dt, const void *src,
                          void *dst, int64_t n)
{
    struct member *x = (struct member *)c;
    size_t size = (size_t)n * dtype_bytes(dt);

    (void)ks;
    team_count(c, 1, c->size * (int64_t)size);
    x->team->src[c->rank] = src;
    pthread_barrier_wait(&x->team->meet);
    for (int r = 0; r < c->size; r++) {
        char *to = (char *)dst + (size_t)r * size;

        if (to != x->team->src[r]) { /* else it is there, and others read it */
            memcpy(to, x->team->src[r], size);
        }
    }
    pthread_barrier_wait(&x->team->meet);
    return 0;
}

static int team_barrier(struct comm *c, struct kstream *ks)
{
    (void)ks;
    pthread_barrier_wait(&((struct member *)c)->team->meet);
    return 0;
}

static void team_init(struct team *t, int ranks)
{
    CHECK(ranks <= MOST_RANKS);
    pthread_barrier_init(&t->meet, NULL, (unsigned)ranks);
}

static void team_fini(struct team *t)
{
    pthread_barrier_destroy(&t->meet);
}

/* What each rank's thread has of it. */
static struct member member_open(struct team *t, int rank, int ranks)
{
    return (struct member){.base = {.name = "team",
                                    .rank = rank,
                                    .size = ranks,
                                    .post_allreduce = team_allreduce,
                                    .post_reduce_scatter = team_reduce_scatter,
                                    .post_allgather = team_allgather,
                                    .post_barrier = team_barrier,
                                    .flight = flight_open()},
                           .team = t};
}

static void member_close(struct member *x)
{
    flight_close(&x->base.flight);
}

#endif
