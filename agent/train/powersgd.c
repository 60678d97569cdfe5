#include "agent/train/powersgd.h"

#include <stdio.h>
#include <stdlib.h>

#include "agent/train/zero.h"

enum {
    ALIGN_ELEMENTS = 4, /* 16 bytes of f32: what a GPU's products are fastest with */
    MARK_EVERY = 50,    /* steps */
    MARK_ELEMENTS = 1 << 18
};

/* A matrix that is compressed. */
struct factored {
    const char *name; /* the Hub's; the layout's */
    int tensor;       /* of the layout */
    int64_t rows, cols, rank;
    int64_t offset; /* of M, from the start of the whole */
    int64_t error;  /* of E, P and Q in their buffers; P's is the group's own */
    int64_t p, q;
};

struct powersgd {
    struct factored *matrix; /* in the layout's order */
    int *first;              /* of a group's; one more than groups */
    int64_t errors, qs, ps;  /* elements; P of the largest group */
    char *error, *q, *p;
    int64_t step;
    bool on;
    bool resumed;
    bool compared; /* this process has made a mark */
};

static int64_t aligned(int64_t n)
{
    return (n + ALIGN_ELEMENTS - 1) / ALIGN_ELEMENTS * ALIGN_ELEMENTS;
}

static int group_of(const struct layout *l, int tensor)
{
    int g = 0;

    while (tensor >= l->group[g].first_tensor + l->group[g].tensors) {
        g++;
    }
    return g;
}

/* --- what is compressed ----------------------------------------------------------------------- */

static bool is_worth(const struct model *m, const struct hub_tensor *h, int64_t rank)
{
    return h->matrix &&
           (double)((h->rows + h->cols) * rank) * m->o.compress.gain < (double)(h->rows * h->cols);
}

static void add_matrix(struct powersgd *p, struct factored *x, const struct model *m,
                       const struct hub_tensor *h, int64_t *group_ps)
{
    const struct tensor *t = &m->layout.tensor[h->tensor];

    *x = (struct factored){.name = h->name,
                           .tensor = h->tensor,
                           .rows = h->rows,
                           .cols = h->cols,
                           .rank = min_i64(m->o.compress.rank, min_i64(h->rows, h->cols)),
                           .offset = t->offset + h->first_row * h->cols,
                           .error = p->errors,
                           .p = *group_ps,
                           .q = p->qs};
    p->errors += aligned(x->rows * x->cols);
    p->qs += aligned(x->cols * x->rank);
    *group_ps += aligned(x->rows * x->rank);
    p->ps = *group_ps > p->ps ? *group_ps : p->ps;
}

struct powersgd *powersgd_new(const struct model *m)
{
    const struct layout *l = &m->layout;
    struct powersgd *p = NEW(struct powersgd);
    int n = 0, group = -1;
    int64_t group_ps = 0;

    *p = (struct powersgd){.matrix = mem_array((size_t)l->hubs, sizeof *p->matrix),
                           .first = mem_array((size_t)l->groups + 1, sizeof *p->first)};
    for (int i = 0; i < l->hubs; i++) {
        const struct hub_tensor *h = &l->hub[i];
        int64_t rank = min_i64(m->o.compress.rank, min_i64(h->rows, h->cols));

        while (group < group_of(l, h->tensor)) {
            p->first[++group] = n;
            group_ps = 0;
        }
        if (group > 0 && group < l->groups - 1 && is_worth(m, h, rank)) {
            add_matrix(p, &p->matrix[n++], m, h, &group_ps);
        }
    }
    p->first[l->groups] = n;
    return p;
}

size_t powersgd_bytes(const struct model *m)
{
    const struct powersgd *p = m->powersgd;

    return p == NULL ? 0 : model_accum_bytes(m, p->errors + p->qs + p->ps);
}

int powersgd_reserve(struct model *m, struct err *e)
{
    struct powersgd *p = m->powersgd;
    int rc = 0;

    if (powersgd_bytes(m) > 0) {
        rc = model_take(m, &p->error, model_accum_bytes(m, p->errors), e);
        rc = rc != 0 ? rc : model_take(m, &p->q, model_accum_bytes(m, p->qs), e);
        rc = rc != 0 ? rc : model_take(m, &p->p, model_accum_bytes(m, p->ps), e);
    }
    return rc;
}

void powersgd_free(struct model *m)
{
    struct powersgd *p = m->powersgd;

    if (p == NULL) {
        return;
    }
    m->powersgd = NULL;
    m->k->mem_free(p->p);
    m->k->mem_free(p->q);
    m->k->mem_free(p->error);
    free(p->matrix);
    free(p->first);
    free(p);
}

bool powersgd_has(const struct model *m, int group)
{
    const struct powersgd *p = m->powersgd;

    return p != NULL && p->first[group + 1] > p->first[group];
}

bool powersgd_takes(const struct model *m, int group)
{
    return powersgd_has(m, group) && m->powersgd->on;
}

/* --- steps ------------------------------------------------------------------------------------ */

void powersgd_begin(struct model *m, int64_t step)
{
    struct powersgd *p = m->powersgd;

    if (p != NULL) {
        p->step = step;
        p->on = step > m->o.compress.start;
    }
}

void powersgd_set_resumed(struct model *m, bool resumed)
{
    m->powersgd->resumed = resumed;
}

bool powersgd_resumed(const struct model *m)
{
    return m->powersgd != NULL && m->powersgd->resumed;
}

bool powersgd_begun(const struct model *m)
{
    return m->powersgd != NULL && m->powersgd->on && powersgd_bytes(m) > 0;
}

void powersgd_forget(struct model *m)
{
    if (powersgd_begun(m)) {
        powersgd_clear(m);
    }
}

void powersgd_clear(struct model *m)
{
    struct powersgd *p = m->powersgd;

    if (powersgd_bytes(m) > 0) {
        zero_settle(m);
        model_do(m, m->k->mem_zero(m->ks, p->error, model_accum_bytes(m, p->errors)));
        model_do(m, m->k->mem_zero(m->ks, p->q, model_accum_bytes(m, p->qs)));
    }
}

/* Where a matrix's three are, and its gradient. */
struct places {
    char *e, *p, *q, *m;
};

static struct places places_of(const struct model *m, int group, const struct factored *x)
{
    const struct powersgd *p = m->powersgd;

    return (struct places){.e = p->error + model_accum_bytes(m, x->error),
                           .p = p->p + model_accum_bytes(m, x->p),
                           .q = p->q + model_accum_bytes(m, x->q),
                           .m = m->group_grad[group] +
                                model_accum_bytes(m, x->offset - m->layout.group[group].offset)};
}

/* The first compressed step of a run, and of a process that goes on with it, is compared, and then
 * some: a matrix after the other. */
int powersgd_mark(struct model *m, uint16_t *mark, struct err *e)
{
    struct powersgd *p = m->powersgd;
    int64_t since = p != NULL ? p->step - m->o.compress.start - 1 : -1, n;
    const struct factored *x;
    void *made;
    int group, rc;

    *mark = 0;
    if (since < 0 || (p->compared && since % MARK_EVERY != 0) || m->o.zero != 0 ||
        !powersgd_begun(m)) {
        return 0;
    }
    p->compared = true;
    x = &p->matrix[since / MARK_EVERY % p->first[m->layout.groups]];
    group = group_of(&m->layout, x->tensor);
    n = min_i64(x->rows * x->cols, MARK_ELEMENTS);
    made = mem_new(model_accum_bytes(m, n));
    rc = model_get(m, made, places_of(m, group, x).m, model_accum_bytes(m, n), e);
    *mark = (uint16_t)slice_hash(slice_of(made, model_accum_bytes(m, n)));
    free(made);
    return rc;
}

/* Another one for each matrix, step and factor. */
static uint64_t seed_of(const struct powersgd *p, const struct factored *x, bool q)
{
    return ((uint64_t)p->step << 24) + 2 * (uint64_t)(x - p->matrix) + q;
}

static void make_p(struct model *m, struct kstream *ks, const struct factored *x, struct places at)
{
    const struct kops *k = m->k;

    model_do(m, k->add(ks, m->accum, at.e, at.e, at.m, x->rows * x->cols));
    model_do(
        m, k->orthonormalize(ks, m->accum, at.q, x->cols, x->rank, seed_of(m->powersgd, x, true)));
    model_do(
        m, k->matmul(ks, m->accum, m->accum, at.p, at.e, at.q, x->rows, x->rank, x->cols, 0, NULL));
}

/* From the sum of all ranks' P. */
static void make_q(struct model *m, struct kstream *ks, const struct factored *x, struct places at)
{
    const struct kops *k = m->k;

    model_do(
        m, k->orthonormalize(ks, m->accum, at.p, x->rows, x->rank, seed_of(m->powersgd, x, false)));
    model_do(m, k->matmul(ks, m->accum, m->accum, at.q, at.e, at.p, x->cols, x->rank, x->rows,
                          MATMUL_TA, NULL));
    model_do(m, k->matmul(ks, m->accum, m->accum, at.e, at.p, at.q, x->rows, x->cols, x->rank,
                          MATMUL_TB | MATMUL_SUB, NULL));
}

static void make_m(struct model *m, struct kstream *ks, const struct factored *x, struct places at)
{
    model_do(m, m->k->matmul(ks, m->accum, m->accum, at.m, at.p, at.q, x->rows, x->cols, x->rank,
                             MATMUL_TB, NULL));
}

static void each(struct model *m, struct kstream *ks, int group,
                 void (*make)(struct model *m, struct kstream *ks, const struct factored *x,
                              struct places at))
{
    const struct powersgd *p = m->powersgd;

    for (int i = p->first[group]; i < p->first[group + 1]; i++) {
        make(m, ks, &p->matrix[i], places_of(m, group, &p->matrix[i]));
    }
}

char *powersgd_set(const struct model *m, enum powersgd_set set, int64_t *elements)
{
    const struct powersgd *p = m->powersgd;

    *elements = p == NULL ? 0 : set == POWERSGD_ERRORS ? p->errors : p->qs;
    return p == NULL ? NULL : set == POWERSGD_ERRORS ? p->error : p->q;
}

bool powersgd_tensor(const struct model *m, int number, struct powersgd_tensor *out)
{
    const struct powersgd *p = m->powersgd;
    bool error = number % 2 == 0;
    const struct factored *x;
    int64_t all;

    if (p == NULL || number >= 2 * p->first[m->layout.groups]) {
        return false;
    }
    x = &p->matrix[number / 2];
    *out = (struct powersgd_tensor){.set = error ? POWERSGD_ERRORS : POWERSGD_FACTORS,
                                    .offset = error ? x->error : x->q,
                                    .rows = error ? x->rows : x->cols,
                                    .cols = error ? x->cols : x->rank};
    out->at = powersgd_set(m, out->set, &all) + model_accum_bytes(m, out->offset);
    snprintf(out->name, sizeof out->name, "%s.%s", error ? "error" : "factor", x->name);
    return true;
}

/* --- messages --------------------------------------------------------------------------------- */

/* Elements of a group's P, of its Q. */
static int64_t ps_of(const struct powersgd *p, int group)
{
    const struct factored *last = &p->matrix[p->first[group + 1] - 1];

    return last->p + aligned(last->rows * last->rank);
}

static int64_t qs_of(const struct powersgd *p, int group)
{
    const struct factored *last = &p->matrix[p->first[group + 1] - 1];

    return last->q + aligned(last->cols * last->rank) - p->matrix[p->first[group]].q;
}

/* The elements between the matrices, and behind them. */
static void sum_rest(struct model *m, int group)
{
    const struct powersgd *p = m->powersgd;
    const struct group *g = &m->layout.group[group];
    int64_t from = g->offset;

    for (int i = p->first[group]; i <= p->first[group + 1]; i++) {
        bool ends = i == p->first[group + 1];
        const struct factored *x = &p->matrix[ends ? i - 1 : i];
        int64_t to = ends ? g->offset + g->size : x->offset;

        zero_sum_run(m, m->group_grad[group] + model_accum_bytes(m, from - g->offset), to - from);
        from = x->offset + x->rows * x->cols;
    }
}

int64_t powersgd_elements(const struct model *m, int group)
{
    const struct powersgd *p = m->powersgd;
    int64_t n = m->layout.group[group].size + ps_of(p, group) + qs_of(p, group);

    for (int i = p->first[group]; i < p->first[group + 1]; i++) {
        n -= p->matrix[i].rows * p->matrix[i].cols;
    }
    return n;
}

void powersgd_sum(struct model *m, struct kstream *ks, int group)
{
    struct powersgd *p = m->powersgd;
    char *q = p->q + model_accum_bytes(m, p->matrix[p->first[group]].q);

    sum_rest(m, group);
    each(m, ks, group, make_p);
    zero_sum_run(m, p->p, ps_of(p, group));
    each(m, ks, group, make_q);
    zero_sum_run(m, q, qs_of(p, group));
    each(m, ks, group, make_m);
}

void powersgd_rehearse(struct model *m, struct kstream *ks)
{
    for (int g = 0; m->powersgd != NULL && g < m->layout.groups; g++) {
        each(m, ks, g, make_p);
        each(m, ks, g, make_q);
        each(m, ks, g, make_m);
    }
}
