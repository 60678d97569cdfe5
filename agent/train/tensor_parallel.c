#include "agent/train/tensor_parallel.h"

static bool is_cut(const struct model *m)
{
    return m->o.tp > 1;
}

/* --- rows ---------------------------------------------------------------------------------------------------------- */

int64_t tp_rows(const struct model *m, int64_t rows)
{
    CHECK(rows % m->o.tp == 0); /* sequences are a multiple */
    return rows / m->o.tp;
}

const void *tp_gather(struct model *m, const void *own, int64_t rows)
{
    if (!is_cut(m)) {
        return own;
    }
    if (m->rc == 0) {
        model_do(m, comm_allgather(m->o.tp_comm, m->ks, m->dt, own, m->wide,
                                   tp_rows(m, rows) * m->config.hidden));
    }
    return m->wide;
}

void *tp_sums(const struct model *m, void *own)
{
    return is_cut(m) ? m->wide : own;
}

void tp_scatter(struct model *m, void *own, int64_t rows)
{
    if (is_cut(m) && m->rc == 0) {
        model_do(m, comm_reduce_scatter(m->o.tp_comm, m->ks, m->dt, m->wide, own,
                                        tp_rows(m, rows) * m->config.hidden));
    }
}

/* --- the vocabulary ------------------------------------------------------------------------------------------------ */

static const struct tensor *embedding_of(const struct model *m)
{
    return layout_find(&m->layout, 0, T_WTE);
}

const int32_t *tp_tokens(struct model *m, const int32_t *token, int64_t rows)
{
    const struct tensor *wte = embedding_of(m);
    int64_t first = m->o.tp_rank * wte->rows;

    if (!is_cut(m)) {
        return token;
    }
    for (int64_t i = 0; i < rows; i++) {
        int64_t at = token[i] - first;

        m->own_token[i] = at >= 0 && at < wte->used_rows ? (int32_t)at : -1;
    }
    return m->own_token;
}

void tp_crossentropy(struct model *m, void *loss, const int32_t *target, int64_t rows, bool learn,
                     double scale)
{
    const struct kops *k = m->k;
    const struct tensor *wte = embedding_of(m);
    int64_t first = m->o.tp_rank * wte->rows, n = rows * CROSSENTROPY_TALLY;
    void *gradient = learn ? m->logits : NULL;
    char *mine = (char *)m->tallies + model_accum_bytes(m, m->o.tp_rank * n);

    if (!is_cut(m)) {
        model_do(m, k->crossentropy(m->ks, m->dt, loss, gradient, m->logits, target, rows,
                                    wte->used_rows, wte->rows, scale));
        return;
    }
    model_do(m, k->crossentropy_tally(m->ks, m->dt, mine, m->logits, target, rows, first,
                                      wte->used_rows, wte->rows));
    if (m->rc == 0) {
        model_do(m, comm_allgather(m->o.tp_comm, m->ks, m->accum, mine, m->tallies, n));
    }
    model_do(m, k->crossentropy_join(m->ks, m->dt, loss, gradient, m->logits, m->tallies, m->o.tp,
                                     target, rows, first, wte->used_rows, wte->rows, scale));
}

/* --- gradients of what all ranks have ------------------------------------------------------------------------------ */

/* Whether each rank's gradient is a sum over its own rows. */
static bool is_partial(const struct tensor *t)
{
    return t->copied && t->kind != T_WPE;
}

/* Those that follow each other in one message. */
void tp_sum_gradients(struct model *m, int group)
{
    const struct group *g = &m->layout.group[group];
    const struct tensor *t = &m->layout.tensor[g->first_tensor];
    int i = 0;

    while (is_cut(m) && i < g->tensors) {
        int first = i;
        int64_t from, end;

        while (i < g->tensors && is_partial(&t[i])) {
            i++;
        }
        if (i == first) {
            i++;
            continue;
        }
        from = t[first].offset - g->offset;
        end = i < g->tensors ? t[i].offset - g->offset : g->size;
        if (m->rc == 0) {
            model_do(m,
                     comm_allreduce(m->o.tp_comm, m->ks, m->accum,
                                    m->group_grad[group] + model_accum_bytes(m, from), end - from));
        }
    }
}

/* Of a group's gradients from element p.offset on, those in a run. */
static void add_squares(struct model *m, double *sum, struct piece p, const char *gradients,
                        int64_t offset, int64_t n)
{
    int64_t from = offset > p.offset ? offset : p.offset;
    int64_t end = offset + n < p.offset + p.n ? offset + n : p.offset + p.n;

    if (end > from) {
        model_do(m, m->k->sumsq_add(m->ks, m->accum, sum,
                                    gradients + model_accum_bytes(m, from - p.offset), end - from));
    }
}

void tp_sumsq(struct model *m, double *sum, int group, struct piece p, const char *gradients)
{
    const struct group *g = &m->layout.group[group];

    if (m->o.tp_rank == 0) {
        add_squares(m, sum, p, gradients, p.offset, p.n);
        return;
    }
    for (int i = 0; i < g->tensors; i++) {
        const struct tensor *t = &m->layout.tensor[g->first_tensor + i];

        if (!t->copied) {
            add_squares(m, sum, p, gradients, t->offset, t->rows * t->cols);
        }
    }
}

void tp_count_once(struct model *m, double *x)
{
    if (m->o.tp_rank != 0) {
        model_do(m, m->k->mem_zero(m->ks, x, sizeof *x));
    }
}
