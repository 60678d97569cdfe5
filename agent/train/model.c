#include "agent/train/model.h"

#include <stdlib.h>

#include "agent/train/angles.h"
#include "agent/train/powersgd.h"
#include "agent/train/tensor_parallel.h"
#include "agent/train/zero.h"

/* Logits are made, turned into gradients and used up in pieces of so many rows, and about so many
 * bytes at most. Each piece reads and writes the whole gradient of the head's weight: 8 bytes an
 * element, beside two operations a row. With 8192 rows that is a tenth of the multiplication's time
 * on an H200, with a thousand as much as the multiplication itself. Where nothing is learned, short
 * pieces cost nothing. */
enum { HEAD_ROWS = 8192, HEAD_TILE = 256 };
#define HEAD_BYTES         ((int64_t)2 << 30)
#define HEAD_BYTES_FORWARD ((int64_t)256 << 20)
/* Tokens of a pass: beside config.c's limits this keeps every sum of bytes far inside 63 bits. */
#define MAX_ROWS ((int64_t)1 << 26)

size_t model_bytes(const struct model *m, int64_t elements)
{
    return (size_t)elements * dtype_bytes(m->dt);
}

size_t model_accum_bytes(const struct model *m, int64_t elements)
{
    return (size_t)elements * dtype_bytes(m->accum);
}

void model_do(struct model *m, int rc)
{
    flight_beat(m->flight);
    if (m->rc == 0) {
        m->rc = rc;
    }
}

static int device_error(const struct model *m, struct err *e)
{
    struct comm *c = m->o.all != NULL ? m->o.all : m->o.comm;
    const char *said = m->k->fault();

    if (m->rc == E_NETWORK) {
        return err_set(e, m->rc, "%s: the connection between the ranks broke: %s", c->name,
                       comm_fault(c));
    }
    if (said[0] == '\0' && c != NULL) {
        said = comm_fault(c); /* it may have seen the fault first */
    }
    return err_set(e, m->rc, "%s (%s): an operation failed: %s%s%s", m->k->name, m->k->device,
                   err_plain(m->rc), said[0] != '\0' ? ": " : "", said);
}

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

/* --- the plan --------------------------------------------------------------------------------- */

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
    const struct model_config *k = &m->part;
    int64_t own = tp_rows(m, rows);
    size_t stat = model_accum_bytes(m, own), stream = model_bytes(m, own * k->hidden);
    int64_t fc = k->mlp == MLP_SWIGLU ? 2 * k->ffn : k->ffn;

    b->norm1 = carve(c, stream);
    b->mean1 = k->norm == NORM_LAYER ? carve(c, stat) : NULL;
    b->rstd1 = carve(c, stat);
    b->qkv = carve(c, model_bytes(m, rows * (k->heads + 2 * k->kv_heads) * k->head_dim));
    b->att = carve(c, model_bytes(m, rows * k->heads * k->head_dim));
    b->lse = carve(c, model_accum_bytes(m, rows * k->heads));
    b->mid = carve(c, stream);
    b->norm2 = carve(c, stream);
    b->mean2 = k->norm == NORM_LAYER ? carve(c, stat) : NULL;
    b->rstd2 = carve(c, stat);
    b->fc = carve(c, model_bytes(m, rows * fc));
    b->act = carve(c, model_bytes(m, rows * k->ffn));
    b->out = carve(c, stream);
}

static void carve_stream(struct model *m, struct carver *c, int64_t rows)
{
    size_t stream = model_bytes(m, tp_rows(m, rows) * m->config.hidden);
    int64_t segments = (m->config.layers + m->slots - 1) / m->slots;

    /* Without a backward pass a block may write over what it read. */
    for (int64_t i = 0; i < segments; i++) {
        m->kept[i] = m->o.training || i == 0 ? carve(c, stream) : m->kept[0];
    }
    for (int64_t i = 0; i < m->slots; i++) {
        carve_block(m, c, &m->slot[i], rows);
    }
}

int64_t model_vocab_rows(const struct model *m)
{
    return layout_find(&m->layout, 0, T_WTE)->rows;
}

int64_t model_head_rows(const struct model *m, int64_t rows)
{
    int64_t most = m->o.training ? HEAD_BYTES : HEAD_BYTES_FORWARD;
    int64_t n = most / (int64_t)model_bytes(m, model_vocab_rows(m));

    n = n < HEAD_ROWS ? n : HEAD_ROWS;
    n = n > HEAD_TILE ? n / HEAD_TILE * HEAD_TILE : n; /* whole tiles of a multiplication */
    return n < 1 ? 1 : n > rows ? rows : n;
}

static void carve_head(struct model *m, struct carver *c, int64_t rows)
{
    int64_t stride = model_vocab_rows(m);
    size_t logits;

    m->head_rows = model_head_rows(m, rows);
    logits = model_bytes(m, m->head_rows * stride);
    /* model_next() wants one row in the wider type. */
    m->logits =
        carve(c, logits > model_accum_bytes(m, stride) ? logits : model_accum_bytes(m, stride));
    m->loss_row = carve(c, model_accum_bytes(m, rows));
    if (m->o.tp > 1) {
        m->tallies = carve(c, model_accum_bytes(m, m->o.tp * m->head_rows * CROSSENTROPY_TALLY));
    }
}

static void carve_all(struct model *m, struct carver *c, int64_t batch, int64_t seq)
{
    const struct model_config *k = &m->part;
    int64_t rows = batch * seq, own = tp_rows(m, rows), att = k->heads * k->head_dim;
    size_t stream = model_bytes(m, own * k->hidden), stat = model_accum_bytes(m, own);
    size_t angles = model_accum_bytes(m, seq * k->head_dim / 2);

    m->loss = carve(c, sizeof *m->loss);
    m->token = carve(c, (size_t)rows * sizeof *m->token);
    m->target = carve(c, (size_t)rows * sizeof *m->target);
    if (k->position == POSITION_ROPE) {
        m->cos = carve(c, angles);
        m->sin = carve(c, angles);
    }
    carve_stream(m, c, rows);
    if (m->o.tp > 1) {
        m->wide = carve(c, model_bytes(m, rows * k->hidden));
    }
    m->normf = carve(c, stream);
    m->meanf = k->norm == NORM_LAYER ? carve(c, stat) : NULL;
    m->rstdf = carve(c, stat);
    carve_head(m, c, rows);
    if (m->o.training) {
        m->dstream = carve(c, stream);
        m->dbranch = carve(c, stream);
        m->datt = carve(c, model_bytes(m, rows * att));
        m->dqkv = carve(c, model_bytes(m, rows * (att + 2 * k->kv_heads * k->head_dim)));
    }
    if (m->o.caching) {
        m->cache = carve(c, model_bytes(m, k->layers * rows * 2 * k->kv_heads * k->head_dim));
    }
    if (m->o.training && m->o.tp > 1) {
        m->copies = carve(c, model_accum_bytes(m, tp_copied(&m->layout)));
    }
    m->attention_scratch = carve(c, m->attention.scratch_bytes);
}

size_t model_activations_bytes(struct model *m, int64_t batch, int64_t seq)
{
    struct carver c = {0};

    CHECK(m->memory == NULL); /* counting forgets where everything lies */
    carve_all(m, &c, batch, seq);
    return c.used;
}

int model_plan(struct model *m, int64_t batch, int64_t seq, struct model_memory *out, struct err *e)
{
    const struct model_config *k = &m->part;
    const struct attention_shape heads = {batch,       seq,         k->heads,
                                          k->kv_heads, k->head_dim, m->o.any_order};
    int rc;

    if (batch > MAX_ROWS / seq) {
        return err_set(e, E_USAGE,
                       "%lld x %lld tokens at a time are too many; at most %lld are supported",
                       (long long)batch, (long long)seq, (long long)MAX_ROWS);
    }
    if (seq > k->context) {
        return err_set(e, E_USAGE, "--seq %lld exceeds the model's context of %lld tokens",
                       (long long)seq, (long long)k->context);
    }
    if (seq % m->o.tp != 0) {
        return err_set(e, E_USAGE, "--seq %lld must be a multiple of --tp %d", (long long)seq,
                       m->o.tp);
    }
    rc = m->k->attention_prepare(m->ks, m->dt, &heads, m->o.training, &m->attention);
    if (rc != 0) {
        return err_set(e, rc, "%s: attention heads of %lld dimensions are not supported",
                       m->k->name, (long long)heads.head_dim);
    }
    zero_plan(m, out);
    out->activations_bytes = model_activations_bytes(m, batch, seq);
    return 0;
}

size_t model_memory_total(const struct model_memory *p)
{
    return p->weights_bytes + p->gradients_bytes + p->optimizer_bytes + p->activations_bytes;
}

/* --- taking and giving back ------------------------------------------------------------------- */

int model_take(struct model *m, char **out, size_t size_bytes, struct err *e)
{
    void *p;
    int rc = m->k->mem_alloc(&p, size_bytes);

    if (rc == E_NOSPACE) {
        return err_set(e, rc, "%s: not enough memory for %.1f MiB; use a smaller --batch or --seq",
                       m->k->name, (double)size_bytes / 1048576.0);
    }
    if (rc != 0) {
        model_do(m, rc);
        return device_error(m, e);
    }
    *out = p;
    return 0;
}

/* What one of so many tensor parallel ranks computes of it. */
static struct model_config part_of(const struct model_config *c, int ranks)
{
    struct model_config p = *c;

    p.heads /= ranks;
    p.kv_heads /= ranks;
    p.ffn /= ranks;
    return p;
}

static int64_t slots_for(const struct model_config *c, const struct model_options *o)
{
    if (!o->training) {
        return 1;
    }
    return o->recompute == 0 || o->recompute > c->layers ? c->layers : o->recompute;
}

int model_open(const struct model_config *c, const struct kops *k, const struct model_options *o,
               struct model **out, struct err *e)
{
    int tp = o->tp == 0 ? 1 : o->tp;
    struct model *m;
    int rc = tp == 1 ? 0 : layout_can_cut(c, tp, e);

    CHECK(!o->caching || (!o->training && tp == 1));
    CHECK(o->zero == 0 || (o->training && o->zero < ZERO_STAGES));
    CHECK(o->compress.rank == 0 || (o->zero <= 1 && o->replicas == NULL && tp == 1));
    *out = NULL;
    if (rc != 0) {
        return rc;
    }
    m = NEW(struct model);
    *m = (struct model){.k = k, .dt = o->dt, .accum = dtype_accum(o->dt), .config = *c, .o = *o};
    m->o.passes = o->passes == 0 ? 1 : o->passes;
    m->o.tp = tp;
    m->part = part_of(c, tp);
    m->own = (struct partition){.rank = o->rank, .ranks = o->world};
    m->param_held = m->state_held = (struct partition){.ranks = 1};
    if (o->zero >= 1) {
        m->state_held = m->own;
        m->param_held = o->zero == 3 ? m->own : m->param_held;
    }
    m->master_held = m->dt == m->accum ? m->param_held : m->state_held;
    layout_init_cut(&m->layout, c, o->world, o->tp_rank, tp);
    m->powersgd = o->training && o->world > 1 && o->compress.rank > 0 ? powersgd_new(m) : NULL;
    m->group_param = mem_array((size_t)m->layout.groups, sizeof *m->group_param);
    m->group_grad = mem_array((size_t)m->layout.groups, sizeof *m->group_grad);
    m->slots = slots_for(c, o);
    m->slot = mem_array((size_t)m->slots, sizeof *m->slot);
    m->kept = mem_array((size_t)c->layers, sizeof *m->kept);
    rc = k->stream_open(&m->ks);
    if (rc != 0) {
        model_close(&m);
        return err_set(e, rc, "%s: cannot open a stream: %s", k->name, k->fault());
    }
    *out = m;
    return 0;
}

void model_close(struct model **mp)
{
    struct model *m = *mp;

    if (m == NULL) {
        return;
    }
    *mp = NULL;
    m->k->mem_free(m->memory);
    zero_release(m);
    m->k->stream_close(&m->ks);
    layout_fini(&m->layout);
    free(m->group_param);
    free(m->group_grad);
    free(m->slot);
    free(m->kept);
    free(m->own_token);
    free(m);
}

int model_put_run(struct model *m, char *set, struct partition held, enum dtype dt, int64_t offset,
                  int64_t n, const void *from, struct err *e)
{
    struct piece p = partition_clip(&m->layout, held, offset, n);
    size_t size = dtype_bytes(dt);

    return p.n == 0 ? 0
                    : model_put(m, set + (size_t)p.at * size,
                                (const char *)from + (size_t)(p.offset - offset) * size,
                                (size_t)p.n * size, e);
}

int64_t model_noise(const struct model *m, int64_t offset, int64_t n, struct noise *noise)
{
    struct numbering at = {.n = n, .first = offset};

    if (m->o.tp > 1 && m->dt != m->accum) { /* else there is one run, or no rounding */
        at = layout_number(&m->layout, offset, n);
        at.first = at.first < 0 ? offset : at.first;
    }
    noise->first = (uint64_t)at.first;
    noise->cols = (uint64_t)at.cols;
    noise->whole_cols = (uint64_t)at.whole_cols;
    noise->skip = (uint64_t)at.skip;
    return at.n;
}

static void refresh_group(struct model *m, int group, const struct noise *noise)
{
    const struct layout *l = &m->layout;
    struct piece p = partition_group(l, m->state_held, group);
    char *to = m->param + model_bytes(m, partition_clip(l, m->param_held, p.offset, p.n).at);
    const char *master = m->master + model_accum_bytes(m, p.at);
    struct noise here;

    if (noise == NULL) {
        model_do(m, m->k->convert(m->ks, m->dt, to, m->accum, master, p.n));
        return;
    }
    here = *noise;
    for (int64_t at = 0, n; at < p.n; at += n) {
        n = model_noise(m, p.offset + at, p.n - at, &here);
        model_do(m, m->k->convert_stochastic(m->ks, m->dt, to + model_bytes(m, at),
                                             master + model_accum_bytes(m, at), n, &here));
    }
}

void model_refresh(struct model *m, const struct noise *noise)
{
    for (int g = 0; m->master != m->param && g < m->layout.groups; g++) {
        refresh_group(m, g, noise);
        zero_publish(m, g);
    }
}

/* In the type that the operation wants them in. */
static int put_angles(struct model *m, void *to, const double *from, int64_t n, struct err *e)
{
    float *narrow;
    int rc;

    if (m->accum == DT_F64) {
        return model_put(m, to, from, (size_t)n * sizeof *from, e);
    }
    narrow = mem_array((size_t)n, sizeof *narrow);
    for (int64_t i = 0; i < n; i++) {
        narrow[i] = (float)from[i];
    }
    rc = model_put(m, to, narrow, (size_t)n * sizeof *narrow, e);
    free(narrow);
    return rc;
}

static int make_angles(struct model *m, struct err *e)
{
    int64_t n = m->seq * m->config.head_dim / 2;
    double *cosine = mem_array((size_t)n, sizeof *cosine),
           *sine = mem_array((size_t)n, sizeof *sine);
    int rc;

    angles_fill(&m->config, m->seq, cosine, sine);
    rc = put_angles(m, m->cos, cosine, n, e);
    rc = rc != 0 ? rc : put_angles(m, m->sin, sine, n, e);
    free(cosine);
    free(sine);
    return rc;
}

int model_reserve(struct model *m, int64_t batch, int64_t seq, struct err *e)
{
    struct carver c = {0};
    int rc;

    CHECK(!m->o.caching || batch == 1);
    m->k->mem_free(m->memory);
    m->memory = NULL;
    rc = model_plan(m, batch, seq, &m->taken, e);
    if (rc == 0 && m->param == NULL) {
        rc = zero_reserve(m, e);
    }
    if (rc != 0) {
        return rc;
    }
    rc = model_take(m, &m->memory, m->taken.activations_bytes, e);
    if (rc != 0) {
        return rc;
    }
    c.base = m->memory;
    carve_all(m, &c, batch, seq);
    if (m->o.tp > 1) {
        free(m->own_token);
        m->own_token = mem_array((size_t)(batch * seq), sizeof *m->own_token);
    }
    m->batch = batch;
    m->seq = seq;
    m->known = 0;
    return m->config.position == POSITION_ROPE ? make_angles(m, e) : 0;
}
