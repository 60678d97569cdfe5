#include "agent/train/model.h"

#include <stdlib.h>

/* Logits are made, turned into gradients and used up in pieces of about this size. */
#define HEAD_BYTES ((int64_t)256 << 20)

size_t model_bytes(const struct model *m, int64_t elements)
{
    return (size_t)elements * dtype_bytes(m->dt);
}

void model_do(struct model *m, int rc)
{
    if (m->rc == 0) {
        m->rc = rc;
    }
}

static int device_error(const struct model *m, struct err *e)
{
    return err_set(e, m->rc, "%s (%s): an operation failed: %s", m->k->name, m->k->device,
                   err_plain(m->rc));
}

/* --- memory -------------------------------------------------------------------------------------------------------- */

static int alloc(struct model *m, char **out, size_t size_bytes, struct err *e)
{
    void *p;
    int rc = m->k->mem_alloc(&p, size_bytes);

    if (rc != 0) {
        return err_set(e, rc, "%s: no room for %.1f MiB: a smaller --batch or --seq helps",
                       m->k->name, (double)size_bytes / 1048576.0);
    }
    *out = p;
    return 0;
}

int model_open(const struct model_config *c, const struct kops *k, enum dtype dt, int world,
               bool training, struct model **out, struct err *e)
{
    struct model *m = NEW(struct model);
    char *loss = NULL;
    int rc;

    *out = NULL;
    if (c->norm != NORM_LAYER || c->position != POSITION_LEARNED || c->mlp != MLP_GELU) {
        free(m);
        return err_set(e, E_UNSUPPORTED, "%s models cannot be run yet", config_family(c));
    }
    *m = (struct model){.k = k, .dt = dt, .config = *c, .training = training};
    layout_init(&m->layout, c, world);
    m->block = mem_array((size_t)c->layers, sizeof *m->block);
    rc = k->stream_open(&m->ks);
    if (rc != 0) {
        err_set(e, rc, "%s: no stream", k->name);
        goto out;
    }
    rc = alloc(m, &m->param, model_bytes(m, m->layout.size), e);
    if (rc == 0 && training) {
        rc = alloc(m, &m->grad, model_bytes(m, m->layout.size), e);
    }
    if (rc == 0) {
        rc = alloc(m, &loss, sizeof *m->loss, e);
    }
    if (rc == 0) {
        m->loss = (double *)(void *)loss;
        *out = m;
        m = NULL;
    }
out:
    model_close(&m);
    return rc;
}

void model_close(struct model **mp)
{
    struct model *m = *mp;

    if (m == NULL) {
        return;
    }
    *mp = NULL;
    m->k->mem_free(m->memory);
    m->k->mem_free(m->loss);
    m->k->mem_free(m->grad);
    m->k->mem_free(m->param);
    m->k->stream_close(&m->ks);
    layout_fini(&m->layout);
    free(m->block);
    free(m);
}

/* Hands out pieces of `base`; with base NULL it only counts. */
struct carver {
    char *base;
    size_t used;
};

static void *carve(struct carver *c, size_t size_bytes)
{
    void *p = c->base == NULL ? NULL : c->base + c->used;

    c->used += (size_bytes + 255) / 256 * 256;
    return p;
}

static void carve_block(struct model *m, struct carver *c, struct block_acts *b, int64_t rows)
{
    const struct model_config *k = &m->config;
    size_t stat = model_bytes(m, rows), stream = model_bytes(m, rows * k->hidden);

    b->norm1 = carve(c, stream);
    b->mean1 = carve(c, stat);
    b->rstd1 = carve(c, stat);
    b->qkv = carve(c, model_bytes(m, rows * (k->heads + 2 * k->kv_heads) * k->head_dim));
    b->att = carve(c, model_bytes(m, rows * k->heads * k->head_dim));
    b->lse = carve(c, model_bytes(m, rows * k->heads));
    b->mid = carve(c, stream);
    b->norm2 = carve(c, stream);
    b->mean2 = carve(c, stat);
    b->rstd2 = carve(c, stat);
    b->fc = carve(c, model_bytes(m, rows * k->ffn));
    b->act = carve(c, model_bytes(m, rows * k->ffn));
    b->out = carve(c, stream);
}

static void carve_all(struct model *m, struct carver *c, int64_t rows)
{
    const struct model_config *k = &m->config;
    int64_t stride = config_padded_vocab(k);
    int64_t wide = k->heads * k->head_dim, qkv = wide + 2 * k->kv_heads * k->head_dim;
    size_t stat = model_bytes(m, rows), stream = model_bytes(m, rows * k->hidden);

    m->token = carve(c, (size_t)rows * sizeof *m->token);
    m->target = carve(c, (size_t)rows * sizeof *m->target);
    m->embedded = carve(c, stream);
    for (int64_t l = 0; l < k->layers; l++) {
        if (m->training || l == 0) {
            carve_block(m, c, &m->block[l], rows);
        } else {
            m->block[l] = m->block[0]; /* nothing is kept for a backward pass */
        }
    }
    m->normf = carve(c, stream);
    m->meanf = carve(c, stat);
    m->rstdf = carve(c, stat);
    m->head_rows = HEAD_BYTES / (int64_t)model_bytes(m, stride);
    m->head_rows = m->head_rows < 1 ? 1 : m->head_rows > rows ? rows : m->head_rows;
    m->logits = carve(c, model_bytes(m, m->head_rows * stride));
    m->loss_row = carve(c, stat);
    /* One buffer is the scratch of both directions: what a branch adds to the stream, and its gradient. */
    m->dbranch = carve(c, stream);
    if (m->training) {
        m->dstream = carve(c, stream);
        m->dwide = carve(c, model_bytes(m, rows * (k->ffn > wide ? k->ffn : wide)));
        m->dqkv = carve(c, model_bytes(m, rows * qkv));
    }
    m->attention_scratch = carve(c, m->attention.scratch_bytes);
}

static struct attention_shape heads_of(const struct model *m, int64_t batch, int64_t seq)
{
    const struct model_config *c = &m->config;

    return (struct attention_shape){batch, seq, c->heads, c->kv_heads, c->head_dim, false};
}

int model_reserve(struct model *m, int64_t batch, int64_t seq, struct err *e)
{
    struct attention_shape heads = heads_of(m, batch, seq);
    struct carver c = {0};
    int rc;

    if (seq > m->config.context) {
        return err_set(e, E_USAGE, "--seq %lld is longer than the model's context of %lld",
                       (long long)seq, (long long)m->config.context);
    }
    m->k->mem_free(m->memory);
    m->memory = NULL;
    rc = m->k->attention_prepare(m->ks, m->dt, &heads, m->training, &m->attention);
    if (rc != 0) {
        return err_set(e, rc, "%s: no attention for heads of %lld", m->k->name,
                       (long long)heads.head_dim);
    }
    carve_all(m, &c, batch * seq);
    rc = alloc(m, &m->memory, c.used, e);
    if (rc == 0) {
        m->memory_bytes = c.used;
        c = (struct carver){.base = m->memory};
        carve_all(m, &c, batch * seq);
        m->batch = batch;
        m->seq = seq;
    }
    return rc;
}

/* --- parameters in and out ----------------------------------------------------------------------------------------- */

int model_put(struct model *m, void *to, const void *from, size_t size_bytes, struct err *e)
{
    model_do(m, m->k->mem_put(m->ks, to, from, size_bytes));
    return m->rc != 0 ? device_error(m, e) : 0;
}

int model_get(struct model *m, void *to, const void *from, size_t size_bytes, struct err *e)
{
    model_do(m, m->k->mem_get(m->ks, to, from, size_bytes));
    return m->rc != 0 ? device_error(m, e) : 0;
}

/* --- the passes ---------------------------------------------------------------------------------------------------- */

/* Of a whole, the group's tensor of that kind; NULL when this model has none. */
static void *tensor_in(const struct model *m, char *whole, int group, enum tensor_kind kind)
{
    const struct tensor *t = layout_find(&m->layout, group, kind);

    return t == NULL ? NULL : whole + model_bytes(m, t->offset);
}

static void *param(const struct model *m, int group, enum tensor_kind kind)
{
    return tensor_in(m, m->param, group, kind);
}

static void *grad(const struct model *m, int group, enum tensor_kind kind)
{
    return tensor_in(m, m->grad, group, kind);
}

/* y = x * w^T + b */
static void linear(struct model *m, void *y, const void *x, int g, enum tensor_kind w,
                   enum tensor_kind b, int64_t rows, int64_t out, int64_t in)
{
    const struct matmul_tail tail = {.bias = param(m, g, b)};

    model_do(m, m->k->matmul(m->ks, m->dt, m->dt, y, x, param(m, g, w), rows, out, in, MATMUL_TB,
                             &tail));
}

/* dx = dy * w; adds to the gradients of w and b. */
static void linear_backward(struct model *m, void *dx, const void *dy, const void *x, int g,
                            enum tensor_kind w, enum tensor_kind b, int64_t rows, int64_t out,
                            int64_t in)
{
    const struct kops *k = m->k;

    model_do(m, k->matmul(m->ks, m->dt, dtype_accum(m->dt), grad(m, g, w), dy, x, out, in, rows,
                          MATMUL_TA | MATMUL_ADD, NULL));
    model_do(m, k->bias_backward(m->ks, m->dt, grad(m, g, b), dy, rows, out));
    model_do(m, k->matmul(m->ks, m->dt, m->dt, dx, dy, param(m, g, w), rows, in, out, 0, NULL));
}

static void block_forward(struct model *m, int g, const void *in, int64_t batch, int64_t seq)
{
    const struct kops *k = m->k;
    const struct model_config *c = &m->config;
    const struct block_acts *a = &m->block[g - 1];
    struct attention_shape heads = heads_of(m, batch, seq);
    int64_t rows = batch * seq, wide = c->heads * c->head_dim;
    int64_t qkv = wide + 2 * c->kv_heads * c->head_dim;

    model_do(m, k->layernorm_forward(m->ks, m->dt, a->norm1, a->mean1, a->rstd1, in,
                                     param(m, g, T_NORM1_G), param(m, g, T_NORM1_B), rows,
                                     c->hidden, c->norm_eps));
    linear(m, a->qkv, a->norm1, g, T_QKV_W, T_QKV_B, rows, qkv, c->hidden);
    model_do(m, k->attention_forward(m->ks, m->dt, a->att, a->lse, a->qkv, &heads,
                                     m->attention_scratch));
    linear(m, m->dbranch, a->att, g, T_PROJ_W, T_PROJ_B, rows, c->hidden, wide);
    model_do(m, k->add(m->ks, m->dt, a->mid, in, m->dbranch, rows * c->hidden));

    model_do(m, k->layernorm_forward(m->ks, m->dt, a->norm2, a->mean2, a->rstd2, a->mid,
                                     param(m, g, T_NORM2_G), param(m, g, T_NORM2_B), rows,
                                     c->hidden, c->norm_eps));
    linear(m, a->fc, a->norm2, g, T_FC_W, T_FC_B, rows, c->ffn, c->hidden);
    model_do(m, k->gelu_forward(m->ks, m->dt, a->act, a->fc, rows * c->ffn));
    linear(m, m->dbranch, a->act, g, T_OUT_W, T_OUT_B, rows, c->hidden, c->ffn);
    model_do(m, k->add(m->ks, m->dt, a->out, a->mid, m->dbranch, rows * c->hidden));
}

/* m->dstream holds the gradient behind the block and is left holding the one before it. */
static void block_backward(struct model *m, int g, const void *in, int64_t batch, int64_t seq)
{
    const struct kops *k = m->k;
    const struct model_config *c = &m->config;
    const struct block_acts *a = &m->block[g - 1];
    struct attention_shape heads = heads_of(m, batch, seq);
    int64_t rows = batch * seq, wide = c->heads * c->head_dim;
    int64_t qkv = wide + 2 * c->kv_heads * c->head_dim;

    linear_backward(m, m->dwide, m->dstream, a->act, g, T_OUT_W, T_OUT_B, rows, c->hidden, c->ffn);
    model_do(m, k->gelu_backward(m->ks, m->dt, m->dwide, m->dwide, a->fc, rows * c->ffn));
    linear_backward(m, m->dbranch, m->dwide, a->norm2, g, T_FC_W, T_FC_B, rows, c->ffn, c->hidden);
    model_do(m, k->layernorm_backward(m->ks, m->dt, m->dstream, grad(m, g, T_NORM2_G),
                                      grad(m, g, T_NORM2_B), m->dbranch, a->mid,
                                      param(m, g, T_NORM2_G), a->mean2, a->rstd2, rows, c->hidden));

    /* dwide is free again, and wide enough for the gradient of attention's output. */
    linear_backward(m, m->dwide, m->dstream, a->att, g, T_PROJ_W, T_PROJ_B, rows, c->hidden, wide);
    model_do(m, k->attention_backward(m->ks, m->dt, m->dqkv, m->dwide, a->qkv, a->att, a->lse,
                                      &heads, m->attention_scratch));
    linear_backward(m, m->dbranch, m->dqkv, a->norm1, g, T_QKV_W, T_QKV_B, rows, qkv, c->hidden);
    model_do(m, k->layernorm_backward(m->ks, m->dt, m->dstream, grad(m, g, T_NORM1_G),
                                      grad(m, g, T_NORM1_B), m->dbranch, in, param(m, g, T_NORM1_G),
                                      a->mean1, a->rstd1, rows, c->hidden));
}

static const void *block_input(const struct model *m, int64_t block)
{
    return block == 0 ? m->embedded : m->block[block - 1].out;
}

/* Up to the final norm. */
static void forward(struct model *m, const int32_t *token, int64_t batch, int64_t seq)
{
    const struct model_config *c = &m->config;
    int64_t rows = batch * seq;
    int last = m->layout.groups - 1;

    CHECK(batch >= 1 && seq >= 1 && rows <= m->batch * m->seq && seq <= c->context);
    model_do(m, m->k->mem_put(m->ks, m->token, token, (size_t)rows * sizeof *token));
    model_do(m, m->k->embedding_forward(m->ks, m->dt, m->embedded, m->token, param(m, 0, T_WTE),
                                        param(m, 0, T_WPE), rows, seq, c->hidden));
    for (int64_t l = 0; l < c->layers; l++) {
        block_forward(m, (int)l + 1, block_input(m, l), batch, seq);
    }
    model_do(m, m->k->layernorm_forward(m->ks, m->dt, m->normf, m->meanf, m->rstdf,
                                        block_input(m, c->layers), param(m, last, T_NORMF_G),
                                        param(m, last, T_NORMF_B), rows, c->hidden, c->norm_eps));
}

/* Logits, losses and, when learning, the gradients of the head and of what it read (into dbranch), piece by piece. */
static void head(struct model *m, const int32_t *target, int64_t rows, bool learn, double scale)
{
    const struct kops *k = m->k;
    int64_t hidden = m->config.hidden, stride = config_padded_vocab(&m->config);

    model_do(m, k->mem_put(m->ks, m->target, target, (size_t)rows * sizeof *target));
    for (int64_t at = 0; at < rows; at += m->head_rows) {
        int64_t n = rows - at < m->head_rows ? rows - at : m->head_rows;
        const char *x = (const char *)m->normf + model_bytes(m, at * hidden);
        char *dx = (char *)m->dbranch + model_bytes(m, at * hidden);

        model_do(m, k->matmul(m->ks, m->dt, m->dt, m->logits, x, param(m, 0, T_WTE), n, stride,
                              hidden, MATMUL_TB, NULL));
        model_do(m, k->crossentropy(m->ks, m->dt, (char *)m->loss_row + model_bytes(m, at),
                                    learn ? m->logits : NULL, m->logits, m->target + at, n,
                                    m->config.vocab, stride, scale));
        if (learn) {
            model_do(m, k->matmul(m->ks, m->dt, dtype_accum(m->dt), grad(m, 0, T_WTE), m->logits, x,
                                  stride, hidden, n, MATMUL_TA | MATMUL_ADD, NULL));
            model_do(m, k->matmul(m->ks, m->dt, m->dt, dx, m->logits, param(m, 0, T_WTE), n, hidden,
                                  stride, 0, NULL));
        }
    }
    model_do(m, k->sum_add(m->ks, m->dt, m->loss, m->loss_row, rows));
}

/* From the gradient of the final norm's output, in dbranch. */
static void backward(struct model *m, int64_t batch, int64_t seq)
{
    const struct kops *k = m->k;
    const struct model_config *c = &m->config;
    int64_t rows = batch * seq;
    int last = m->layout.groups - 1;

    model_do(m, k->mem_zero(m->ks, m->dstream, model_bytes(m, rows * c->hidden)));
    model_do(m,
             k->layernorm_backward(m->ks, m->dt, m->dstream, grad(m, last, T_NORMF_G),
                                   grad(m, last, T_NORMF_B), m->dbranch, block_input(m, c->layers),
                                   param(m, last, T_NORMF_G), m->meanf, m->rstdf, rows, c->hidden));
    for (int64_t l = c->layers - 1; l >= 0; l--) {
        block_backward(m, (int)l + 1, block_input(m, l), batch, seq);
    }
    model_do(m, k->embedding_backward(m->ks, m->dt, grad(m, 0, T_WTE), grad(m, 0, T_WPE),
                                      m->dstream, m->token, rows, seq, c->hidden, c->vocab));
}

void model_begin(struct model *m)
{
    if (m->grad != NULL) {
        model_do(m, m->k->mem_zero(m->ks, m->grad, model_bytes(m, m->layout.size)));
    }
    model_do(m, m->k->mem_zero(m->ks, m->loss, sizeof *m->loss));
}

void model_learn(struct model *m, const int32_t *token, const int32_t *target, int64_t batch,
                 int64_t seq, double scale)
{
    CHECK(m->training);
    forward(m, token, batch, seq);
    head(m, target, batch * seq, true, scale);
    backward(m, batch, seq);
}

void model_measure(struct model *m, const int32_t *token, const int32_t *target, int64_t batch,
                   int64_t seq)
{
    forward(m, token, batch, seq);
    head(m, target, batch * seq, false, 0);
}

int model_loss(struct model *m, double *sum, struct err *e)
{
    model_do(m, m->k->mem_get(m->ks, sum, m->loss, sizeof *sum));
    return m->rc != 0 ? device_error(m, e) : 0;
}

int model_next(struct model *m, const int32_t *token, int64_t n, float *logits, struct err *e)
{
    int64_t hidden = m->config.hidden, vocab = m->config.vocab;

    CHECK(m->dt == DT_F32);
    forward(m, token, 1, n);
    model_do(m,
             m->k->matmul(m->ks, m->dt, m->dt, m->logits,
                          (char *)m->normf + model_bytes(m, (n - 1) * hidden), param(m, 0, T_WTE),
                          1, config_padded_vocab(&m->config), hidden, MATMUL_TB, NULL));
    model_do(m, m->k->mem_get(m->ks, logits, m->logits, model_bytes(m, vocab)));
    return m->rc != 0 ? device_error(m, e) : 0;
}
