#include "agent/train/tensor_parallel.h"

#include "agent/train/zero.h"

static bool is_cut(const struct model *m)
{
    return m->o.tp > 1;
}

/* --- rows ------------------------------------------------------------------------------------- */

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

/* --- the vocabulary --------------------------------------------------------------------------- */

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

void tp_crossentropy(struct model *m, void *loss, const int32_t *target, int64_t rows,
                     bool for_training, double scale)
{
    const struct kops *k = m->k;
    const struct tensor *wte = embedding_of(m);
    int64_t first = m->o.tp_rank * wte->rows, n = rows * CROSSENTROPY_TALLY;
    void *gradient = for_training ? m->logits : NULL;
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

/* --- gradients of what all ranks have --------------------------------------------------------- */

int64_t tp_copied(const struct layout *l)
{
    int64_t n = 0;

    for (int i = 0; l->cuts > 1 && i < l->tensors; i++) {
        n += l->tensor[i].copied ? l->tensor[i].rows * l->tensor[i].cols : 0;
    }
    return n;
}

/* Gradients of the position table are made of all rows on each rank, the others of the rank's own
 * rows. Of groups that hold the same pieces, one has all sums. */
static bool contributes(const struct model *m, const struct tensor *t)
{
    return (m->o.tp_rank == 0 || t->kind != T_WPE) &&
           (m->o.replicas == NULL || m->o.replicas->rank == 0);
}

/* Between the gradients of copied tensors, as far as they are in this rank's pieces, and
 * m->copies. */
static void move_copies(struct model *m, bool back)
{
    const struct layout *l = &m->layout;
    int64_t at = 0;

    for (int g = 0; g < l->groups; g++) {
        char *grad;
        struct piece p = back ? zero_updates(m, g, &grad) : zero_gradients(m, g, &grad);

        for (int i = 0; i < l->group[g].tensors; i++) {
            const struct tensor *t = &l->tensor[l->group[g].first_tensor + i];
            int64_t size = t->rows * t->cols, behind = t->offset + size;
            int64_t from = t->offset > p.offset ? t->offset : p.offset;
            int64_t end = behind < p.offset + p.n ? behind : p.offset + p.n;
            char *here = grad + model_accum_bytes(m, from - p.offset);
            char *copy = (char *)m->copies + model_accum_bytes(m, at + from - t->offset);

            if (t->copied && end > from && (back || contributes(m, t))) {
                model_do(m, m->k->mem_copy(m->ks, back ? here : copy, back ? copy : here,
                                           model_accum_bytes(m, end - from)));
            }
            at += t->copied ? size : 0;
        }
    }
}

/* One sum over all ranks: sums of several groups of ranks may differ by what is rounded, and copies
 * that differ by a bit drift apart. */
void tp_sum_gradients(struct model *m)
{
    int64_t n = tp_copied(&m->layout);

    if (!is_cut(m)) {
        return;
    }
    zero_settle(m);
    model_do(m, m->k->mem_zero(m->ks, m->copies, model_accum_bytes(m, n)));
    move_copies(m, false);
    if (m->rc == 0) {
        model_do(m, comm_allreduce(m->o.all, m->ks, m->accum, m->copies, n));
    }
    move_copies(m, true);
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
