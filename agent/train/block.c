#include "agent/train/block.h"

#include "agent/train/tensor_parallel.h"
#include "agent/train/zero.h"

/* Where a group of that element type has a tensor. */
static void *tensor_in(const struct model *m, char *group_at, enum dtype dt, int group,
                       enum tensor_kind kind)
{
    const struct tensor *t = layout_find(&m->layout, group, kind);

    return t == NULL
               ? NULL
               : group_at + (size_t)(t->offset - m->layout.group[group].offset) * dtype_bytes(dt);
}

void *block_param(const struct model *m, int group, enum tensor_kind kind)
{
    return tensor_in(m, m->group_param[group], m->dt, group, kind);
}

void *block_grad(const struct model *m, int group, enum tensor_kind kind)
{
    return tensor_in(m, m->group_grad[group], m->accum, group, kind);
}

void block_norm(struct model *m, void *y, void *mean, void *rstd, const void *x, int group,
                enum tensor_kind gain, int64_t rows)
{
    const struct kops *k = m->k;
    const struct model_config *c = &m->config;
    const void *g = block_param(m, group, gain);

    model_do(m, c->norm == NORM_RMS
                    ? k->rmsnorm_forward(m->ks, m->dt, y, rstd, x, g, rows, c->hidden, c->norm_eps)
                    : k->layernorm_forward(m->ks, m->dt, y, mean, rstd, x, g,
                                           block_param(m, group, gain + 1), rows, c->hidden,
                                           c->norm_eps));
}

void block_norm_backward(struct model *m, const void *x, const void *mean, const void *rstd,
                         int group, enum tensor_kind gain, void *dbias, int64_t rows)
{
    const struct kops *k = m->k;
    const struct model_config *c = &m->config;
    const void *g = block_param(m, group, gain);
    void *dg = block_grad(m, group, gain);

    model_do(m, c->norm == NORM_RMS
                    ? k->rmsnorm_backward(m->ks, m->dt, m->dstream, dg, dbias, m->dbranch, x, g,
                                          rstd, rows, c->hidden)
                    : k->layernorm_backward(m->ks, m->dt, m->dstream, dg,
                                            block_grad(m, group, gain + 1), dbias, m->dbranch, x, g,
                                            mean, rstd, rows, c->hidden));
}

/* A layer's weight and bias, and its extents. */
struct linear {
    int group;
    enum tensor_kind w, b;
    int64_t out, in;
};

/* y = x * w^T, and what the tail says. */
static void linear_multiply(struct model *m, void *y, const void *x, const struct linear *l,
                            int64_t rows, const struct matmul_tail *tail)
{
    model_do(m, m->k->matmul(m->ks, m->dt, m->dt, y, x, block_param(m, l->group, l->w), rows,
                             l->out, l->in, MATMUL_TB, tail));
}

/* y = x * w^T + bias, and what else the tail says, of all rows; x has this rank's own. */
static void linear_forward(struct model *m, void *y, const void *x, const struct linear *l,
                           int64_t rows, struct matmul_tail tail)
{
    tail.bias = block_param(m, l->group, l->b);
    linear_multiply(m, y, tp_gather(m, x, rows), l, rows, &tail);
}

/* y = residual + x * w^T + bias, of this rank's own rows; x has all. Partial sums get the bias
 * once, and the residual after they are summed. */
static void forward_to_stream(struct model *m, void *y, const void *x, const struct linear *l,
                              const void *residual, int64_t rows)
{
    struct matmul_tail tail = {.bias = m->o.tp_rank == 0 ? block_param(m, l->group, l->b) : NULL,
                               .residual = m->o.tp == 1 ? residual : NULL};

    linear_multiply(m, tp_sums(m, y), x, l, rows, &tail);
    tp_scatter(m, y, rows);
    if (m->o.tp > 1) {
        model_do(m, m->k->add(m->ks, m->dt, y, y, residual, tp_rows(m, rows) * l->out));
    }
}

/* A step's first product need not read what it adds to. */
static unsigned adding(const struct model *m)
{
    return m->fresh ? 0 : MATMUL_ADD;
}

/* Adds to the gradient of the weight; both of all rows. */
static void for_training(struct model *m, const void *dy, const void *x, const struct linear *l,
                         int64_t rows)
{
    model_do(m, m->k->matmul(m->ks, m->dt, m->accum, block_grad(m, l->group, l->w), dy, x, l->out,
                             l->in, rows, MATMUL_TA | adding(m), NULL));
}

/* Adds to the bias's; those of proj and out, whose dy is the stream's gradient, come from the norm
 * behind them. */
static void bias_gradient(struct model *m, const void *dy, const struct linear *l, int64_t rows)
{
    void *db = block_grad(m, l->group, l->b);

    if (db != NULL) {
        model_do(m, m->k->bias_backward(m->ks, m->dt, db, dy, rows, l->out));
    }
}

/* dx = dy * w */
static void linear_backward(struct model *m, void *dx, const void *dy, const struct linear *l,
                            int64_t rows, const struct matmul_tail *tail)
{
    model_do(m, m->k->matmul(m->ks, m->dt, m->dt, dx, dy, block_param(m, l->group, l->w), rows,
                             l->in, l->out, 0, tail));
}

/* The gradient of a norm's output, into dbranch: of this rank's own rows; dy has all. */
static void backward_to_norm(struct model *m, const void *dy, const struct linear *l, int64_t rows)
{
    linear_backward(m, tp_sums(m, m->dbranch), dy, l, rows, NULL);
    tp_scatter(m, m->dbranch, rows);
}

/* The four layers of a block, as this rank has them. */
struct layers {
    struct linear qkv, proj, fc, out;
    struct attention_shape heads;
    int64_t rows; /* of all ranks */
    int64_t own;
};

static struct layers layers_of(const struct model *m, int64_t block, int64_t batch, int64_t seq)
{
    const struct model_config *c = &m->part;
    int64_t att = c->heads * c->head_dim, qkv = att + 2 * c->kv_heads * c->head_dim;
    int64_t fc = c->mlp == MLP_SWIGLU ? 2 * c->ffn : c->ffn;
    int g = (int)block + 1;

    return (struct layers){
        .qkv = {g, T_QKV_W, T_QKV_B, qkv, c->hidden},
        .proj = {g, T_PROJ_W, T_PROJ_B, c->hidden, att},
        .fc = {g, T_FC_W, T_FC_B, fc, c->hidden},
        .out = {g, T_OUT_W, T_OUT_B, c->hidden, c->ffn},
        .heads = {batch, seq, c->heads, c->kv_heads, c->head_dim, m->o.any_order},
        .rows = batch * seq,
        .own = tp_rows(m, batch * seq),
    };
}

/* The block's keys and values, of the sequence's first tokens. */
static char *cache_of(const struct model *m, int64_t block, int64_t token)
{
    int64_t row = 2 * m->config.kv_heads * m->config.head_dim;

    return m->cache + model_bytes(m, (block * m->seq + token) * row);
}

/* Behind the m->known tokens of the cache. */
static void cache_block_kv(struct model *m, int64_t block, const char *qkv,
                           const struct attention_shape *s)
{
    size_t q = model_bytes(m, s->heads * s->head_dim);
    size_t kv = model_bytes(m, 2 * s->kv_heads * s->head_dim);

    model_do(m, m->k->mem_copy_rows(m->ks, cache_of(m, block, m->known), kv, qkv + q, q + kv, kv,
                                    s->seq));
}

/* With tokens in the cache this is one more of their sequence. */
static void attend(struct model *m, int64_t block, struct block_acts *a,
                   const struct attention_shape *s)
{
    const struct kops *k = m->k;
    struct attention_shape cached = *s;

    if (m->config.position == POSITION_ROPE) {
        size_t from = model_accum_bytes(m, m->known * s->head_dim / 2);

        model_do(m, k->rope_forward(m->ks, m->dt, a->qkv, (const char *)m->cos + from,
                                    (const char *)m->sin + from, s));
    }
    if (m->o.caching) {
        cache_block_kv(m, block, a->qkv, s);
    }
    if (m->known == 0) {
        model_do(
            m, k->attention_forward(m->ks, m->dt, a->att, a->lse, a->qkv, s, m->attention_scratch));
        return;
    }
    cached.seq = m->seq;
    model_do(m, k->attention_next(m->ks, m->dt, a->att, a->qkv, cache_of(m, block, 0), &cached,
                                  m->known + 1));
}

void block_forward(struct model *m, int64_t block, struct block_acts *a, const void *in, void *out,
                   int64_t batch, int64_t seq)
{
    const struct kops *k = m->k;
    const struct layers l = layers_of(m, block, batch, seq);
    int g = l.qkv.group;

    zero_need(m, g, out == NULL ? -1 : g + 1); /* after the last block the model's end */
    block_norm(m, a->norm1, a->mean1, a->rstd1, in, g, T_NORM1_G, l.own);
    linear_forward(m, a->qkv, a->norm1, &l.qkv, l.rows, (struct matmul_tail){0});
    attend(m, block, a, &l.heads);
    forward_to_stream(m, a->mid, a->att, &l.proj, in, l.rows);

    block_norm(m, a->norm2, a->mean2, a->rstd2, a->mid, g, T_NORM2_G, l.own);
    if (m->config.mlp == MLP_SWIGLU) {
        linear_forward(m, a->fc, a->norm2, &l.fc, l.rows, (struct matmul_tail){0});
        model_do(m, k->swiglu_forward(m->ks, m->dt, a->act, a->fc, l.rows, m->part.ffn));
    } else {
        linear_forward(m, a->act, a->norm2, &l.fc, l.rows, (struct matmul_tail){.pre_gelu = a->fc});
    }
    if (out != NULL) {
        forward_to_stream(m, out, a->act, &l.out, a->mid, l.rows);
    }
}

void block_backward(struct model *m, int64_t block, struct block_acts *a, const void *in,
                    int64_t batch, int64_t seq)
{
    const struct kops *k = m->k;
    const struct layers l = layers_of(m, block, batch, seq);
    const struct matmul_tail slope = {.gelu_at = a->fc};
    void *dfc = a->act; /* act has been used up when its own gradient is made */
    const void *dy;
    int g = l.qkv.group;
    /* The group that is needed next: of the block before, or of the first one that is computed
     * again. */
    int64_t before = block % m->slots == 0 ? block + 1 - m->slots : block;

    zero_need(m, g, before > 0 ? (int)before : -1);
    dy = tp_gather(m, m->dstream, l.rows);
    for_training(m, dy, a->act, &l.out, l.rows);
    if (m->config.mlp == MLP_SWIGLU) {
        linear_backward(m, a->act, dy, &l.out, l.rows, NULL);
        model_do(m, k->swiglu_backward(m->ks, m->dt, a->fc, a->act, a->fc, l.rows, m->part.ffn));
        dfc = a->fc;
    } else {
        linear_backward(m, a->act, dy, &l.out, l.rows, &slope);
    }
    for_training(m, dfc, tp_gather(m, a->norm2, l.rows), &l.fc, l.rows);
    bias_gradient(m, dfc, &l.fc, l.rows);
    backward_to_norm(m, dfc, &l.fc, l.rows);
    block_norm_backward(m, a->mid, a->mean2, a->rstd2, g, T_NORM2_G, block_grad(m, g, T_PROJ_B),
                        l.own);

    dy = tp_gather(m, m->dstream, l.rows);
    for_training(m, dy, a->att, &l.proj, l.rows);
    linear_backward(m, m->datt, dy, &l.proj, l.rows, NULL);
    model_do(m, k->attention_backward(m->ks, m->dt, m->dqkv, m->datt, a->qkv, a->att, a->lse,
                                      &l.heads, m->attention_scratch));
    if (m->config.position == POSITION_ROPE) {
        model_do(m, k->rope_backward(m->ks, m->dt, m->dqkv, m->cos, m->sin, &l.heads));
    }
    for_training(m, m->dqkv, tp_gather(m, a->norm1, l.rows), &l.qkv, l.rows);
    bias_gradient(m, m->dqkv, &l.qkv, l.rows);
    backward_to_norm(m, m->dqkv, &l.qkv, l.rows);
    block_norm_backward(m, in, a->mean1, a->rstd1, g, T_NORM1_G, block_grad(m, g - 1, T_OUT_B),
                        l.own);
}
