/* The passes over a whole model: embedding, blocks, head; and back. */
#include "agent/train/block.h"
#include "agent/train/tensor_parallel.h"
#include "agent/train/zero.h"

/* --- the residual stream between blocks ------------------------------------------------------- */

static struct block_acts *acts_of(const struct model *m, int64_t block)
{
    return &m->slot[block % m->slots];
}

static void *stream_before(const struct model *m, int64_t block)
{
    return block % m->slots == 0 ? m->kept[block / m->slots] : acts_of(m, block - 1)->out;
}

/* Where a block's result goes: what comes in front of the next segment is kept there. */
static void *stream_behind(const struct model *m, int64_t block)
{
    return block + 1 < m->config.layers ? stream_before(m, block + 1) : acts_of(m, block)->out;
}

static int last_group(const struct model *m)
{
    return m->layout.groups - 1;
}

/* --- forward ---------------------------------------------------------------------------------- */

/* Up to the final norm. */
static void loss_forward(struct model *m, const int32_t *token, int64_t batch, int64_t seq)
{
    const struct model_config *c = &m->config;
    int64_t rows = batch * seq;
    const char *places;

    m->k->range_begin("forward");
    CHECK(batch >= 1 && seq >= 1 && seq <= m->seq && rows <= m->batch * m->seq);
    zero_need(m, 0, 1);
    places = m->o.tp_rank == 0 ? block_param(m, 0, T_WPE) : NULL; /* added once */
    places = places == NULL ? NULL : places + model_bytes(m, m->known * c->hidden);
    token = tp_tokens(m, token, rows);
    model_do(m, m->k->mem_put(m->ks, m->token, token, (size_t)rows * sizeof *token));
    model_do(m, m->k->embedding_forward(m->ks, m->dt, tp_sums(m, m->kept[0]), m->token,
                                        block_param(m, 0, T_WTE), places, rows, seq, c->hidden));
    tp_scatter(m, m->kept[0], rows);
    for (int64_t l = 0; l < c->layers; l++) {
        block_forward(m, l, acts_of(m, l), stream_before(m, l), stream_behind(m, l), batch, seq);
    }
    zero_need(m, last_group(m), -1);
    block_norm(m, m->normf, m->meanf, m->rstdf, stream_behind(m, c->layers - 1), last_group(m),
               T_NORMF_G, tp_rows(m, rows));
    m->k->range_end();
}

/* The head's weight, or its gradient: the token embedding's when they are tied. */
static void *head_of(const struct model *m,
                     void *(*of)(const struct model *m, int group, enum tensor_kind kind))
{
    return m->config.tied ? of(m, 0, T_WTE) : of(m, last_group(m), T_HEAD_W);
}

/* Logits, losses and, when learning, the gradients of the head and of what it read (into dbranch),
 * piece by piece. */
static void head(struct model *m, const int32_t *target, int64_t rows, bool for_training,
                 double scale)
{
    const struct kops *k = m->k;
    int64_t hidden = m->config.hidden, stride = model_vocab_rows(m);
    void *w = head_of(m, block_param);
    const char *normed = tp_gather(m, m->normf, rows);
    char *sums = tp_sums(m, m->dbranch); /* where `normed` is, it has been used up */

    k->range_begin("head");
    model_do(m, k->mem_put(m->ks, m->target, target, (size_t)rows * sizeof *target));
    for (int64_t at = 0; at < rows; at += m->head_rows) {
        int64_t n = rows - at < m->head_rows ? rows - at : m->head_rows;
        const char *x = normed + model_bytes(m, at * hidden);
        char *dx = sums + model_bytes(m, at * hidden);

        model_do(
            m, k->matmul(m->ks, m->dt, m->dt, m->logits, x, w, n, stride, hidden, MATMUL_TB, NULL));
        tp_crossentropy(m, (char *)m->loss_row + model_accum_bytes(m, at), m->target + at, n,
                        for_training, scale);
        if (for_training) {
            unsigned adding = m->fresh && at == 0 ? 0 : MATMUL_ADD;

            model_do(m, k->matmul(m->ks, m->dt, m->accum, head_of(m, block_grad), m->logits, x,
                                  stride, hidden, n, MATMUL_TA | adding, NULL));
            model_do(m,
                     k->matmul(m->ks, m->dt, m->dt, dx, m->logits, w, n, hidden, stride, 0, NULL));
        }
    }
    if (for_training) {
        tp_scatter(m, m->dbranch, rows);
    }
    model_do(m, k->sum_add(m->ks, m->accum, m->loss, m->loss_row, rows));
    k->range_end();
}

/* --- back ------------------------------------------------------------------------------------- */

/* The activations of the segment that ends with `last`, again; those of the very last are still
 * there. */
static void recompute(struct model *m, int64_t last, int64_t batch, int64_t seq)
{
    m->k->range_begin("recompute");
    for (int64_t l = last / m->slots * m->slots; l <= last; l++) {
        block_forward(m, l, acts_of(m, l), stream_before(m, l),
                      l < last ? stream_behind(m, l) : NULL, batch, seq);
    }
    m->k->range_end();
}

/* From the gradient of the final norm's output, in dbranch. */
static void loss_backward(struct model *m, int64_t batch, int64_t seq)
{
    const struct model_config *c = &m->config;
    int64_t rows = batch * seq, own = tp_rows(m, rows);

    m->k->range_begin("backward");
    model_do(m, m->k->mem_zero(m->ks, m->dstream, model_bytes(m, own * c->hidden)));
    zero_open_gradients(m, last_group(m) - 1);
    block_norm_backward(m, stream_behind(m, c->layers - 1), m->meanf, m->rstdf, last_group(m),
                        T_NORMF_G, block_grad(m, last_group(m) - 1, T_OUT_B), own);
    zero_sum_gradients(m, last_group(m));
    for (int64_t l = c->layers - 1; l >= 0; l--) {
        if (l % m->slots == m->slots - 1 && l != c->layers - 1) {
            recompute(m, l, batch, seq);
        }
        if (l > 0) {
            zero_open_gradients(
                m, (int)l); /* of the block before: what its bias added to the stream */
        }
        block_backward(m, l, acts_of(m, l), stream_before(m, l), batch, seq);
        zero_sum_gradients(m, (int)l + 1);
    }
    model_do(m, m->k->embedding_backward(m->ks, m->dt, block_grad(m, 0, T_WTE),
                                         block_grad(m, 0, T_WPE), tp_gather(m, m->dstream, rows),
                                         m->token, rows, seq, c->hidden,
                                         layout_find(&m->layout, 0, T_WTE)->used_rows));
    zero_sum_gradients(m, 0);
    m->k->range_end();
}

/* --- what callers see ------------------------------------------------------------------------- */

void model_begin(struct model *m)
{
    m->fresh = true;
    m->pass = 0;
    m->sent_bytes = 0;
    model_do(m, m->k->mem_zero(m->ks, m->loss, sizeof *m->loss));
}

void model_forward_backward(struct model *m, const int32_t *token, const int32_t *target,
                            int64_t batch, int64_t seq, double scale)
{
    CHECK(m->o.training);
    loss_forward(m, token, batch, seq);
    zero_open_gradients(m, 0);
    zero_open_gradients(m, last_group(m));
    head(m, target, batch * seq, true, scale);
    loss_backward(m, batch, seq);
    m->pass++;
    if (m->pass == m->o.passes) {
        tp_sum_gradients(m);
    }
    m->fresh = zero_starts_anew(m);
}

void model_measure(struct model *m, const int32_t *token, const int32_t *target, int64_t batch,
                   int64_t seq)
{
    loss_forward(m, token, batch, seq);
    head(m, target, batch * seq, false, 0);
}

int model_loss(struct model *m, double *sum, struct err *e)
{
    return model_get(m, sum, m->loss, sizeof *sum, e);
}

/* Of the n-th row that loss_forward() left. */
static int logits_of(struct model *m, int64_t n, void *logits, struct err *e)
{
    const char *last = (const char *)m->normf + model_bytes(m, (n - 1) * m->config.hidden);

    model_do(m, m->k->matmul(m->ks, m->dt, m->accum, m->logits, last, head_of(m, block_param), 1,
                             model_vocab_rows(m), m->config.hidden, MATMUL_TB, NULL));
    return model_get(m, logits, m->logits, model_accum_bytes(m, m->config.vocab), e);
}

int model_next(struct model *m, const int32_t *token, int64_t n, void *logits, struct err *e)
{
    CHECK(m->o.tp == 1);
    model_forget(m);
    loss_forward(m, token, 1, n);
    return logits_of(m, n, logits, e);
}

int model_extend(struct model *m, const int32_t *token, int64_t n, void *logits, struct err *e)
{
    int64_t take = 0;

    CHECK(m->o.caching && n >= 1 && n <= m->seq - m->known);
    for (int64_t at = 0; at < n; at += take) {
        take = m->known == 0 ? n : 1;
        loss_forward(m, token + at, 1, take);
        m->known += take;
    }
    return logits_of(m, take, logits, e);
}

void model_forget(struct model *m)
{
    m->known = 0;
}
