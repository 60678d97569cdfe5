#include "agent/train/measure.h"

#include <stdlib.h>

#include "agent/train/zero.h"

enum { ROUND = 256 }; /* batches whose losses are exchanged at once */

struct measuring {
    struct model *m;
    const struct data *d;
    struct comm *comm; /* NULL: alone */
    int64_t batch;
    uint64_t windows;
    int32_t *token, *target; /* of a batch */
    double sum[ROUND];
    void *shared; /* device memory for them */
};

/* The sum of the losses of batch number `i`. */
static int measure_batch(struct measuring *x, uint64_t i, double *sum, struct err *e)
{
    struct model *m = x->m;
    uint64_t first = i * (uint64_t)x->batch;
    int64_t n = (int64_t)min_u64((uint64_t)x->batch, x->windows - first);
    int rc = 0;

    for (int64_t b = 0; rc == 0 && b < n; b++) {
        rc = data_window(x->d, first + (uint64_t)b, x->token + b * m->seq, x->target + b * m->seq,
                         e);
    }
    if (rc != 0) {
        return rc;
    }
    model_begin(m);
    model_measure(m, x->token, x->target, n, m->seq);
    return model_loss(m, sum, e);
}

/* Each rank has its own sums and zeros for the others': adding zeros changes no bit. */
static int exchange_measured(struct measuring *x, size_t n, struct err *e)
{
    struct model *m = x->m;
    int rc;

    if (x->comm == NULL || x->comm->size == 1) {
        return 0;
    }
    rc = model_put(m, x->shared, x->sum, n * sizeof *x->sum, e);
    if (rc == 0) {
        rc = zero_allreduce(m, x->comm, DT_F64, x->shared, (int64_t)n);
        if (rc != 0) {
            err_set(e, rc, "%s: the connection between the ranks broke", x->comm->name);
        }
    }
    return rc != 0 ? rc : model_get(m, x->sum, x->shared, n * sizeof *x->sum, e);
}

static uint64_t ranks_of(const struct measuring *x)
{
    return x->comm != NULL ? (uint64_t)x->comm->size : 1;
}

/* Where a pass gathers parameters all ranks make as many: one that has a batch less repeats the
 * first. */
static int keep_pace(struct measuring *x, uint64_t from, size_t n, struct err *e)
{
    uint64_t ranks = ranks_of(x), rank = x->comm != NULL ? (uint64_t)x->comm->rank : 0;
    uint64_t before = (rank + ranks - from % ranks) % ranks; /* the first of the n that is its */
    uint64_t mine = n > before ? (n - before + ranks - 1) / ranks : 0;
    uint64_t most = (n + ranks - 1) / ranks;
    double unused;
    int rc = 0;

    for (; rc == 0 && x->m->param_held.ranks > 1 && mine < most; mine++) {
        rc = measure_batch(x, 0, &unused, e);
    }
    return rc;
}

static int measure_all(struct measuring *x, double *total, struct err *e)
{
    uint64_t batches = x->windows / (uint64_t)x->batch + (x->windows % (uint64_t)x->batch != 0);
    uint64_t rank = x->comm != NULL ? (uint64_t)x->comm->rank : 0;
    uint64_t ranks = ranks_of(x);
    int rc = 0;

    for (uint64_t from = 0; rc == 0 && from < batches; from += ROUND) {
        size_t n = (size_t)min_u64(ROUND, batches - from);

        for (size_t i = 0; rc == 0 && i < n; i++) {
            x->sum[i] = 0;
            if ((from + i) % ranks == rank) {
                rc = measure_batch(x, from + i, &x->sum[i], e);
            }
        }
        rc = rc != 0 ? rc : keep_pace(x, from, n, e);
        rc = rc != 0 ? rc : exchange_measured(x, n, e);
        for (size_t i = 0; rc == 0 && i < n; i++) {
            *total += x->sum[i];
        }
    }
    return rc;
}

int measure(struct model *m, const struct data *d, int64_t batch, int64_t batches,
            struct comm *comm, struct measured *out, struct err *e)
{
    size_t room = (size_t)(batch * m->seq);
    struct measuring x = {.m = m, .d = d, .comm = comm, .batch = batch, .windows = data_count(d)};
    double total = 0;
    uint64_t limit;
    int rc = 0;

    CHECK(batch <= m->batch);
    if (data_vocab(d) > (uint64_t)m->config.vocab) {
        return err_set(e, E_INVALID,
                       "the data has a vocabulary of %u tokens, but the model's has only %lld",
                       data_vocab(d), (long long)m->config.vocab);
    }
    if (batches > 0 && mul_u64((uint64_t)batches, (uint64_t)batch, &limit)) {
        x.windows = min_u64(x.windows, limit);
    }
    x.token = mem_array(room, sizeof *x.token);
    x.target = mem_array(room, sizeof *x.target);
    if (comm != NULL && comm->size > 1) {
        rc = m->k->mem_alloc(&x.shared, sizeof x.sum);
        rc = rc != 0 ? err_set(e, rc, "%s: not enough memory for the losses of %d batches",
                               m->k->name, ROUND)
                     : 0;
    }
    rc = rc != 0 ? rc : measure_all(&x, &total, e);
    *out = (struct measured){.windows = x.windows, .tokens = x.windows * (uint64_t)m->seq};
    out->loss = total / (double)out->tokens;
    if (rc == 0) { /* else a kernel may hang, and freeing waits for it */
        m->k->mem_free(x.shared);
    }
    free(x.token);
    free(x.target);
    return rc;
}
