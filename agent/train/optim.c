#include "agent/train/optim.h"

#include <math.h>
#include <stdlib.h>

enum { SUMSQ, NORM, SCALE, SCALARS };

static int alloc(struct model *m, char **out, size_t size_bytes, struct err *e)
{
    void *p;
    int rc = m->k->mem_alloc(&p, size_bytes);

    if (rc != 0) {
        return err_set(e, rc, "%s: no room for the optimiser's %.1f MiB%s%s", m->k->name,
                       (double)size_bytes / 1048576.0, rc == E_NOSPACE ? "" : ": ",
                       rc == E_NOSPACE ? "" : m->k->fault());
    }
    *out = p;
    return 0;
}

int optim_open(struct model *m, const struct optim_options *o, struct optim **out, struct err *e)
{
    struct optim *p = NEW(struct optim);
    size_t size = model_accum_bytes(m, m->layout.size);
    char *scalar = NULL;
    int rc;

    *out = NULL;
    *p = (struct optim){.model = m, .o = *o};
    rc = alloc(m, &p->m, size, e);
    if (rc == 0) {
        rc = alloc(m, &p->v, size, e);
    }
    if (rc == 0) {
        rc = alloc(m, &scalar, SCALARS * sizeof *p->scalar, e);
    }
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

    model_do(m, m->k->mem_zero(m->ks, o->scalar, sizeof *o->scalar));
    model_do(m, m->k->sumsq_add(m->ks, m->accum, o->scalar + SUMSQ, m->grad, m->layout.size));
    model_do(m, m->k->clip_scale(m->ks, o->scalar + NORM, o->scalar + SCALE, o->scalar + SUMSQ,
                                 o->o.clip, unscale));
}

int optim_norm(struct optim *o, double *norm, struct err *e)
{
    return model_get(o->model, norm, o->scalar + NORM, sizeof *norm, e);
}

static void update(struct optim *o, int64_t offset, int64_t n, struct adamw_step *how)
{
    struct model *m = o->model;
    size_t at = model_accum_bytes(m, offset);

    how->noise.first = (uint64_t)offset;
    model_do(m, m->k->adamw(m->ks, m->dt, m->param + model_bytes(m, offset),
                            m->master == m->param ? NULL : m->master + at, o->m + at, o->v + at,
                            m->grad + at, n, o->scalar + SCALE, how));
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
        const struct group *r = &m->layout.group[g];

        how.decay = o->o.decay;
        update(o, r->offset, r->decayed, &how);
        how.decay = 0;
        update(o, r->offset + r->decayed, r->size - r->decayed, &how);
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
    struct model *m = o->model;

    if (m->master != m->param) {
        model_do(m, update_number == 0
                        ? m->k->convert(m->ks, m->dt, m->param, m->accum, m->master, m->layout.size)
                        : m->k->convert_stochastic(m->ks, m->dt, m->param, m->master,
                                                   m->layout.size, &noise));
    }
}
