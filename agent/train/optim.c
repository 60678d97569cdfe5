#include "agent/train/optim.h"

#include <math.h>
#include <stdlib.h>

#include "agent/train/tensor_parallel.h"
#include "agent/train/zero.h"

enum { SUMSQ, NORM, SCALE, SCALARS };

int optim_open(struct model *m, const struct optim_options *o, struct optim **out, struct err *e)
{
    struct optim *p = NEW(struct optim);
    size_t size = model_accum_bytes(m, partition_size(&m->layout, m->state_held));
    char *scalar = NULL;
    int rc;

    *out = NULL;
    *p = (struct optim){.model = m, .o = *o};
    rc = model_take(m, &p->m, size, e);
    rc = rc != 0 ? rc : model_take(m, &p->v, size, e);
    rc = rc != 0 ? rc : model_take(m, &scalar, SCALARS * sizeof *p->scalar, e);
    if (rc == 0) {
        p->scalar = (double *)(void *)scalar;
        *out = p;
        p = NULL;
    }
    optim_close(&p);
    return rc;
}

void optim_close(struct optim **op)
{
    struct optim *o = *op;

    if (o == NULL) {
        return;
    }
    *op = NULL;
    o->model->k->mem_free(o->scalar);
    o->model->k->mem_free(o->v);
    o->model->k->mem_free(o->m);
    free(o);
}

void optim_clip(struct optim *o, double unscale)
{
    struct model *m = o->model;

    zero_settle(m);
    model_do(m, m->k->mem_zero(m->ks, o->scalar, sizeof *o->scalar));
    for (int g = 0; g < m->layout.groups; g++) {
        char *at;
        struct piece mine = zero_gradients(m, g, &at);

        tp_sumsq(m, o->scalar + SUMSQ, g, mine, at);
    }
    zero_sum(m, o->scalar + SUMSQ);
    model_do(m, m->k->clip_scale(m->ks, o->scalar + NORM, o->scalar + SCALE, o->scalar + SUMSQ,
                                 o->o.clip, unscale));
}

int optim_norm(struct optim *o, double *norm, struct err *e)
{
    return model_get(o->model, norm, o->scalar + NORM, sizeof *norm, e);
}

/* A run of elements of one group, of those whose gradients and state are here, with numbers for the
 * rounding. */
static void update_run(struct optim *o, int64_t offset, int64_t n, const char *grad,
                       struct adamw_step *how)
{
    struct model *m = o->model;
    int64_t param = partition_clip(&m->layout, m->param_held, offset, n).at;
    size_t state = model_accum_bytes(m, partition_clip(&m->layout, m->state_held, offset, n).at);

    model_do(m, m->k->adamw(m->ks, m->dt, m->param + model_bytes(m, param),
                            m->master == m->param ? NULL : m->master + state, o->m + state,
                            o->v + state, grad, n, o->scalar + SCALE, how));
}

static void update(struct optim *o, int64_t offset, int64_t n, const char *grad,
                   struct adamw_step *how)
{
    while (n > 0) {
        int64_t run = model_noise(o->model, offset, n, &how->noise);

        update_run(o, offset, run, grad, how);
        grad += model_accum_bytes(o->model, run);
        offset += run;
        n -= run;
    }
}

static void update_group(struct optim *o, int group, struct adamw_step *how)
{
    struct model *m = o->model;
    const struct group *g = &m->layout.group[group];
    char *grad;
    struct piece p = zero_updates(m, group, &grad);
    int64_t decayed = g->offset + g->decayed - p.offset;

    decayed = decayed < 0 ? 0 : decayed > p.n ? p.n : decayed;
    how->decay = o->o.decay;
    update(o, p.offset, decayed, grad, how);
    how->decay = 0;
    update(o, p.offset + decayed, p.n - decayed, grad + model_accum_bytes(m, decayed), how);
}

void optim_update(struct optim *o, int64_t update_number)
{
    struct model *m = o->model;
    struct adamw_step how = {
        .lr = schedule_lr(&o->o.schedule, update_number),
        .beta1 = o->o.beta1,
        .beta2 = o->o.beta2,
        .eps = o->o.eps,
        .correct1 = 1 - pow(o->o.beta1, (double)update_number),
        .correct2 = 1 - pow(o->o.beta2, (double)update_number),
        .noise = {.seed = o->o.seed, .step = (uint64_t)update_number},
    };

    m->k->range_begin("update");
    for (int g = 0; g < m->layout.groups; g++) {
        update_group(o, g, &how);
        zero_publish(m, g);
    }
    m->k->range_end();
}

void optim_step(struct optim *o, int64_t update_number)
{
    optim_clip(o, 1);
    optim_update(o, update_number);
}

void optim_refresh(struct optim *o, int64_t update_number)
{
    const struct noise noise = {.seed = o->o.seed, .step = (uint64_t)update_number};

    model_refresh(o->model, update_number == 0 ? NULL : &noise);
}
