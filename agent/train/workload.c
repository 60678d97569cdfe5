#include "agent/train/workload.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "agent/train/workload_job.h"

/* --- what the tables share -------------------------------------------------------------------- */

struct workload_job job_of(const struct workload *w)
{
    const struct model_config *c = &w->m->config;

    return (struct workload_job){
        .w = w,
        .m = w->m,
        .k = w->m->k,
        .ks = w->m->ks,
        .t = {.k = w->m->k, .ks = w->m->ks, .least_ns = w->least_ns},
        .rows = w->batch * w->seq,
        .cols = c->hidden,
        .out = w->m->dt,
        .heads = {w->batch, w->seq, c->heads, c->kv_heads, c->head_dim, w->m->o.any_order},
    };
}

void *job_noise(struct workload_job *j, int64_t n)
{
    return trial_noise(&j->t, j->m->dt, n);
}

void *job_sums(struct workload_job *j, int64_t n)
{
    return trial_noise(&j->t, j->m->accum, n);
}

/* Times the job, gives back what it took, and notes the row. */
int job_finish(struct workload_job *j, int (*run)(void *arg), struct score *row, struct err *e)
{
    row->took_ns = trial_time(&j->t, run, j);
    trial_clear(&j->t);
    if (j->t.rc != 0) {
        return err_set(e, j->t.rc, "%s, %s: %s: %s", row->what, row->shape, err_plain(j->t.rc),
                       j->t.rc == E_NOSPACE ? "use a smaller --batch or --seq" : j->k->fault());
    }
    scores_add(j->w->scores, row);
    return 0;
}

/* --- products --------------------------------------------------------------------------------- */

static int run_gemm(void *arg)
{
    struct workload_job *j = arg;

    return j->k->matmul(j->ks, j->m->dt, j->out, j->p[0], j->p[1], j->p[2], j->rows, j->n, j->depth,
                        j->flags, (j->flags & MATMUL_ADD) != 0 ? NULL : &j->tail);
}

/* One product; the tail's members that are not NULL are asked for, and made here. */
static int time_gemm(struct workload *w, const char *layer, const char *pass, int64_t m, int64_t n,
                     int64_t depth, unsigned flags, const struct matmul_tail *tail, struct err *e)
{
    struct workload_job j = job_of(w);
    struct score row = {.table = "gemm", .flop = 2 * (double)m * (double)n * (double)depth};

    snprintf(row.what, sizeof row.what, "%s %s", layer, pass);
    snprintf(row.shape, sizeof row.shape, "%lld x %lld x %lld", (long long)m, (long long)n,
             (long long)depth);
    j.rows = m;
    j.n = n;
    j.depth = depth;
    j.flags = flags;
    j.out = (flags & MATMUL_TA) != 0 ? j.m->accum : j.m->dt;
    j.p[0] = trial_room(&j.t, (size_t)(m * n) * dtype_bytes(j.out));
    j.p[1] = job_noise(&j, m * depth);
    j.p[2] = job_noise(&j, n * depth);
    j.tail.bias = tail->bias != NULL ? job_noise(&j, n) : NULL;
    j.tail.residual = tail->residual != NULL ? job_noise(&j, m * n) : NULL;
    j.tail.pre_gelu = tail->pre_gelu != NULL ? job_noise(&j, m * n) : NULL;
    j.tail.gelu_at = tail->gelu_at != NULL ? job_noise(&j, m * n) : NULL;
    return job_finish(&j, run_gemm, &row, e);
}

struct layer {
    const char *name;
    int64_t rows, out, in;
    struct matmul_tail forward, back;
    unsigned adding; /* MATMUL_ADD: most of a step's products add to the weight's gradient */
};

static int gemm_layer(struct workload *w, const struct layer *l, struct err *e)
{
    const struct matmul_tail none = {0};
    int rc = time_gemm(w, l->name, "forward", l->rows, l->out, l->in, MATMUL_TB, &l->forward, e);

    rc = rc != 0 ? rc : time_gemm(w, l->name, "dgrad", l->rows, l->in, l->out, 0, &l->back, e);
    return rc != 0 ? rc
                   : time_gemm(w, l->name, "wgrad", l->out, l->in, l->rows, MATMUL_TA | l->adding,
                               &none, e);
}

int workload_gemm(struct workload *w, struct err *e)
{
    static char wanted; /* stands for an operand that time_gemm() makes */
    const struct model_config *c = &w->m->config;
    int64_t rows = w->batch * w->seq, att = c->heads * c->head_dim;
    int64_t qkv = att + 2 * c->kv_heads * c->head_dim;
    bool gelu = c->mlp == MLP_GELU;
    const void *ab = c->attention_bias ? &wanted : NULL, *mb = c->mlp_bias ? &wanted : NULL;
    const struct layer layer[] = {
        {"qkv", rows, qkv, c->hidden, {.bias = ab}, {0}, 0},
        {"proj", rows, c->hidden, att, {.bias = ab, .residual = &wanted}, {0}, 0},
        {"fc",
         rows,
         gelu ? c->ffn : 2 * c->ffn,
         c->hidden,
         {.bias = mb, .pre_gelu = gelu ? &wanted : NULL},
         {0},
         0},
        {"out",
         rows,
         c->hidden,
         c->ffn,
         {.bias = mb, .residual = &wanted},
         {.gelu_at = gelu ? &wanted : NULL},
         0},
        {"head",
         model_head_rows(w->m, rows),
         config_padded_vocab(c),
         c->hidden,
         {0},
         {0},
         MATMUL_ADD},
    };
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(layer); i++) {
        rc = gemm_layer(w, &layer[i], e);
    }
    return rc;
}

/* --- copies ----------------------------------------------------------------------------------- */

static int run_copy(void *arg)
{
    struct workload_job *j = arg;

    return j->k->mem_copy(j->ks, j->p[0], j->p[1], (size_t)j->rows);
}

int workload_copy(struct workload *w, struct err *e)
{
    static const int64_t mib[] = {4, 32, 256};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(mib); i++) {
        struct workload_job j = job_of(w);
        struct score row = {.table = "copy", .what = "copy"};

        j.rows = mib[i] << 20;
        row.bytes = 2 * (double)j.rows;
        snprintf(row.shape, sizeof row.shape, "%lld MiB", (long long)mib[i]);
        j.p[0] = trial_room(&j.t, (size_t)j.rows);
        j.p[1] = trial_noise(&j.t, DT_F32, j.rows / (int64_t)sizeof(float));
        rc = job_finish(&j, run_copy, &row, e);
    }
    return rc;
}

/* --- attention -------------------------------------------------------------------------------- */

enum { OUT, LSE, QKV, DQKV, DOUT, SCRATCH };

static int run_attention(void *arg)
{
    struct workload_job *j = arg;

    return j->k->attention_forward(j->ks, j->m->dt, j->p[OUT], j->p[LSE], j->p[QKV], &j->heads,
                                   j->p[SCRATCH]);
}

static int run_attention_back(void *arg)
{
    struct workload_job *j = arg;

    return j->k->attention_backward(j->ks, j->m->dt, j->p[DQKV], j->p[DOUT], j->p[QKV], j->p[OUT],
                                    j->p[LSE], &j->heads, j->p[SCRATCH]);
}

static int attention(struct workload *w, const char *what, int (*run)(void *arg), double flop,
                     struct err *e)
{
    struct workload_job j = job_of(w);
    const struct attention_shape *s = &j.heads;
    struct score row = {.table = "attention", .flop = flop};
    struct attention_ready ready = {0};
    int64_t out = j.rows * s->heads * s->head_dim;
    int64_t qkv = j.rows * (s->heads + 2 * s->kv_heads) * s->head_dim;

    snprintf(row.what, sizeof row.what, "%s", what);
    snprintf(row.shape, sizeof row.shape, "%lld x %lld, %lld/%lld of %lld", (long long)s->batch,
             (long long)s->seq, (long long)s->heads, (long long)s->kv_heads,
             (long long)s->head_dim);
    j.t.rc = j.k->attention_prepare(j.ks, j.m->dt, s, true, &ready);
    memcpy(w->attention_by, ready.by, sizeof w->attention_by);
    j.p[OUT] = job_noise(&j, out);
    j.p[LSE] = job_sums(&j, j.rows * s->heads);
    j.p[QKV] = job_noise(&j, qkv);
    j.p[DQKV] = trial_room(&j.t, model_bytes(j.m, qkv));
    j.p[DOUT] = job_noise(&j, out);
    j.p[SCRATCH] = trial_room(&j.t, ready.scratch_bytes);
    if (j.t.rc == 0) { /* lse belongs to the scores, or their exponentials run away */
        j.t.rc = run_attention(&j);
    }
    return job_finish(&j, run, &row, e);
}

int workload_attention(struct workload *w, struct err *e)
{
    const struct model_config *c = &w->m->config;
    double flop =
        2 * (double)(w->batch * c->heads) * (double)(w->seq * w->seq) * (double)c->head_dim;
    int rc = attention(w, "attention forward", run_attention, flop, e);

    return rc != 0 ? rc : attention(w, "attention backward", run_attention_back, 2.5 * flop, e);
}
