#include <stdio.h>

#include "agent/train/workload_job.h"

static int run_norm(void *arg)
{
    struct workload_job *j = arg;
    enum dtype dt = j->m->dt;
    double eps = j->m->config.norm_eps;

    return j->m->config.norm == NORM_RMS
               ? j->k->rmsnorm_forward(j->ks, dt, j->p[0], j->p[1], j->p[2], j->p[3], j->rows,
                                       j->cols, eps)
               : j->k->layernorm_forward(j->ks, dt, j->p[0], j->p[4], j->p[1], j->p[2], j->p[3],
                                         j->p[5], j->rows, j->cols, eps);
}

static double take_norm(struct workload_job *j)
{
    j->p[0] = job_noise(j, j->rows * j->cols);
    j->p[1] = job_sums(j, j->rows);
    j->p[2] = job_noise(j, j->rows * j->cols);
    j->p[3] = job_noise(j, j->cols);
    j->p[4] = job_sums(j, j->rows);
    j->p[5] = job_noise(j, j->cols);
    return 2 * (double)(j->rows * j->cols);
}

static int run_norm_back(void *arg)
{
    struct workload_job *j = arg;
    enum dtype dt = j->m->dt;

    return j->m->config.norm == NORM_RMS
               ? j->k->rmsnorm_backward(j->ks, dt, j->p[0], j->p[6], j->p[9], j->p[7], j->p[2],
                                        j->p[3], j->p[1], j->rows, j->cols)
               : j->k->layernorm_backward(j->ks, dt, j->p[0], j->p[6], j->p[8], j->p[9], j->p[7],
                                          j->p[2], j->p[3], j->p[4], j->p[1], j->rows, j->cols);
}

static double take_norm_back(struct workload_job *j)
{
    (void)take_norm(j);
    j->p[6] = job_sums(j, j->cols);
    j->p[7] = job_noise(j, j->rows * j->cols);
    j->p[8] = job_sums(j, j->cols);
    j->p[9] = j->m->config.mlp_bias ? job_sums(j, j->cols) : NULL;
    return 4 * (double)(j->rows * j->cols);
}

static int run_rope(void *arg)
{
    struct workload_job *j = arg;

    return j->k->rope_forward(j->ks, j->m->dt, j->p[0], j->p[1], j->p[2], &j->heads);
}

static double take_rope(struct workload_job *j)
{
    const struct attention_shape *s = &j->heads;

    j->cols = (s->heads + 2 * s->kv_heads) * s->head_dim;
    j->p[0] = job_noise(j, j->rows * j->cols);
    j->p[1] = job_sums(j, s->seq * s->head_dim / 2);
    j->p[2] = job_sums(j, s->seq * s->head_dim / 2);
    return 2 * (double)(j->rows * (s->heads + s->kv_heads) * s->head_dim);
}

static int run_swiglu(void *arg)
{
    struct workload_job *j = arg;

    return j->k->swiglu_forward(j->ks, j->m->dt, j->p[0], j->p[1], j->rows, j->cols);
}

static int run_swiglu_back(void *arg)
{
    struct workload_job *j = arg;

    return j->k->swiglu_backward(j->ks, j->m->dt, j->p[1], j->p[0], j->p[1], j->rows, j->cols);
}

static double take_swiglu(struct workload_job *j)
{
    j->cols = j->m->config.ffn;
    j->p[0] = job_noise(j, j->rows * j->cols);
    j->p[1] = job_noise(j, 2 * j->rows * j->cols);
    return 3 * (double)(j->rows * j->cols);
}

static double take_swiglu_back(struct workload_job *j)
{
    return take_swiglu(j) / 3 * 5;
}

static int run_bias_back(void *arg)
{
    struct workload_job *j = arg;

    return j->k->bias_backward(j->ks, j->m->dt, j->p[0], j->p[1], j->rows, j->cols);
}

static double take_bias_back(struct workload_job *j)
{
    j->cols = j->m->config.ffn;
    j->p[0] = job_sums(j, j->cols);
    j->p[1] = job_noise(j, j->rows * j->cols);
    return (double)(j->rows * j->cols);
}

static int run_crossentropy(void *arg)
{
    struct workload_job *j = arg;

    return j->k->crossentropy(j->ks, j->m->dt, j->p[0], j->p[1], j->p[1], j->token, j->rows,
                              j->m->config.vocab, j->cols, 1.0 / (double)j->rows);
}

static double take_crossentropy(struct workload_job *j)
{
    j->rows = model_head_rows(j->m, j->rows);
    j->cols = config_padded_vocab(&j->m->config);
    j->p[0] = job_sums(j, j->rows);
    j->p[1] = job_noise(j, j->rows * j->cols);
    j->token = trial_tokens(&j->t, j->rows, j->m->config.vocab);
    return 2 * (double)(j->rows * j->cols);
}

static int run_embedding(void *arg)
{
    struct workload_job *j = arg;

    return j->k->embedding_forward(j->ks, j->m->dt, j->p[0], j->token, j->p[1], j->p[2], j->rows,
                                   j->w->seq, j->cols);
}

static double take_embedding(struct workload_job *j)
{
    const struct model_config *c = &j->m->config;

    j->p[0] = job_noise(j, j->rows * j->cols);
    j->p[1] = job_noise(j, config_padded_vocab(c) * j->cols);
    j->p[2] = c->position == POSITION_LEARNED ? job_noise(j, j->w->seq * j->cols) : NULL;
    j->token = trial_tokens(&j->t, j->rows, c->vocab);
    return 2 * (double)(j->rows * j->cols);
}

static int run_embedding_back(void *arg)
{
    struct workload_job *j = arg;

    return j->k->embedding_backward(j->ks, j->m->dt, j->p[3], j->p[4], j->p[0], j->token, j->rows,
                                    j->w->seq, j->cols, j->m->config.vocab);
}

/* The gradient's rows are read once, each word's sum is read and written: some tenth of the rows,
 * left out. */
static double take_embedding_back(struct workload_job *j)
{
    (void)take_embedding(j);
    j->p[3] = job_sums(j, config_padded_vocab(&j->m->config) * j->cols);
    j->p[4] = j->p[2] != NULL ? job_sums(j, j->w->seq * j->cols) : NULL;
    return (double)(j->rows * j->cols);
}

static int run_norm_of_gradients(void *arg)
{
    struct workload_job *j = arg;

    return j->k->sumsq_add(j->ks, j->m->accum, j->p[1], j->p[0], j->cols);
}

/* Of one block: as long a run as the optimiser takes at a time. */
static int64_t block_elements(const struct workload_job *j)
{
    return j->m->layout.group[1].size;
}

static double take_norm_of_gradients(struct workload_job *j)
{
    j->rows = 1;
    j->cols = block_elements(j);
    j->p[0] = job_sums(j, j->cols);
    j->p[1] = trial_room(&j->t, sizeof(double));
    /* Counted in elements of dt. */
    return (double)j->cols * (double)dtype_bytes(j->m->accum) / (double)dtype_bytes(j->m->dt);
}

static int run_adamw(void *arg)
{
    struct workload_job *j = arg;
    const struct adamw_step how = {1e-4, 0.9, 0.95, 1e-8, 0.1, 0.5, 0.3, {.seed = 1, .step = 1}};

    return j->k->adamw(j->ks, j->m->dt, j->p[0], j->p[1], j->p[2], j->p[3], j->p[4], j->cols,
                       j->p[5], &how);
}

static double take_adamw(struct workload_job *j)
{
    bool masters = j->m->dt != j->m->accum;
    const double scale = 1;

    j->rows = 1;
    j->cols = block_elements(j);
    j->p[0] = job_noise(j, j->cols);
    j->p[1] = masters ? job_sums(j, j->cols) : NULL;
    for (int i = 2; i < 5; i++) {
        j->p[i] = job_sums(j, j->cols);
    }
    j->p[3] = trial_room(&j->t, model_accum_bytes(j->m, j->cols)); /* no variance is negative */
    j->p[5] = trial_room(&j->t, sizeof scale);
    if (j->t.rc == 0) {
        j->t.rc = j->k->mem_put(j->ks, j->p[5], &scale, sizeof scale);
    }
    return (double)j->cols * (masters ? 30.0 : 28.0) / (double)dtype_bytes(j->m->dt);
}

static const struct bound {
    const char *what;
    double (*take)(struct workload_job *j); /* the operands; how many elements of dt move */
    int (*run)(void *arg);
    enum { ALWAYS, ROPE, SWIGLU, BIAS } when;
} bounds[] = {
    {"norm forward", take_norm, run_norm, ALWAYS},
    {"norm backward", take_norm_back, run_norm_back, ALWAYS},
    {"rope", take_rope, run_rope, ROPE},
    {"swiglu forward", take_swiglu, run_swiglu, SWIGLU},
    {"swiglu backward", take_swiglu_back, run_swiglu_back, SWIGLU},
    {"bias backward", take_bias_back, run_bias_back, BIAS},
    {"cross-entropy", take_crossentropy, run_crossentropy, ALWAYS},
    {"embedding forward", take_embedding, run_embedding, ALWAYS},
    {"embedding backward", take_embedding_back, run_embedding_back, ALWAYS},
    {"gradient norm", take_norm_of_gradients, run_norm_of_gradients, ALWAYS},
    {"adamw", take_adamw, run_adamw, ALWAYS},
};

static bool bound_applies(const struct model_config *c, const struct bound *b)
{
    switch (b->when) {
    case ALWAYS:
        return true;
    case ROPE:
        return c->position == POSITION_ROPE;
    case SWIGLU:
        return c->mlp == MLP_SWIGLU;
    case BIAS:
        return c->mlp_bias;
    }
    return false;
}

int workload_memory(struct workload *w, struct err *e)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(bounds); i++) {
        struct workload_job j = job_of(w);
        struct score row = {.table = "memory-bound"};

        if (!bound_applies(&w->m->config, &bounds[i])) {
            continue;
        }
        row.bytes = bounds[i].take(&j) * (double)dtype_bytes(w->m->dt);
        snprintf(row.what, sizeof row.what, "%s", bounds[i].what);
        snprintf(row.shape, sizeof row.shape, "%lld x %lld", (long long)j.rows, (long long)j.cols);
        rc = job_finish(&j, bounds[i].run, &row, e);
    }
    return rc;
}
