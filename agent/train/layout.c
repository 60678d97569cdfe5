#include "agent/train/layout.h"

#include <stdio.h>
#include <stdlib.h>

enum { ALIGN_ELEMENTS = 128, MAX_HUBS_A_GROUP = 16 }; /* 256 bytes of the smallest elements */

/* A tensor of the Hub's as a row of a family's table: kinds in order, rows of one kind follow each
 * other in memory. */
struct row {
    enum tensor_kind kind;
    const char *name;
    int64_t rows; /* 0: this model has none */
    int64_t cols; /* 0: a vector */
};

/* How tensor parallel ranks share out a tensor. */
enum cut { CUT_ROWS, CUT_VOCAB, CUT_COLUMNS, COPIED };

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static void begin_group(struct layout *l)
{
    l->group[l->groups] = (struct group){.offset = l->size, .first_tensor = l->tensors};
}

static enum cut cut_of(enum tensor_kind kind)
{
    switch (kind) {
    case T_WTE:
    case T_HEAD_W:
        return CUT_VOCAB;
    case T_QKV_W:
    case T_QKV_B:
    case T_FC_W:
    case T_FC_B:
        return CUT_ROWS;
    case T_PROJ_W:
    case T_OUT_W:
        return CUT_COLUMNS;
    case T_WPE:
    case T_NORM1_G:
    case T_NORM1_B:
    case T_PROJ_B:
    case T_NORM2_G:
    case T_NORM2_B:
    case T_OUT_B:
    case T_NORMF_G:
    case T_NORMF_B:
    case T_KINDS:
        break;
    }
    return COPIED;
}

static struct tensor *add_tensor(struct layout *l, enum tensor_kind kind, int64_t cols)
{
    struct tensor *t = &l->tensor[l->tensors++];
    enum cut cut = cut_of(kind);

    l->group[l->groups].tensors++;
    *t = (struct tensor){.kind = kind,
                         .cols = cut == CUT_COLUMNS ? cols / l->cuts : cols,
                         .offset = l->size,
                         .whole_cols = cols,
                         .copied = cut == COPIED};
    return t;
}

/* Rows of the last Hub's tensor, behind what its own has already. Without any there is no slice;
 * those that follow each other there as here are one. */
static void add_slice(struct layout *l, struct tensor *t, int64_t row0, int64_t rows)
{
    struct hub_slice *s = l->slices > 0 ? &l->slice[l->slices - 1] : NULL;
    int64_t first = t->rows;

    t->rows = t->used_rows += rows;
    if (rows == 0) {
        return;
    }
    if (s != NULL && s->hub == l->hubs && s->row0 + s->rows == row0) {
        s->rows += rows;
        return;
    }
    l->slice[l->slices++] = (struct hub_slice){
        .hub = l->hubs,
        .tensor = l->tensors - 1,
        .row0 = row0,
        .rows = rows,
        .col0 = t->copied || t->cols == t->whole_cols ? 0 : l->cut_rank * t->cols,
        .cols = t->cols,
        .offset = t->offset + first * t->cols};
}

/* The rows of a vocabulary with padding that each rank has. */
static int64_t vocab_rows(const struct layout *l, int64_t vocab)
{
    return round_up(vocab, (int64_t)ALIGN_ELEMENTS * l->cuts) / l->cuts;
}

/* Rows that are cut apart follow each other: q, k and v where they are one tensor on the Hub. */
static void add_cut_rows(struct layout *l, struct tensor *t, const struct row *row,
                         const struct model_config *c)
{
    int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    bool fused = (row->kind == T_QKV_W || row->kind == T_QKV_B) && row->rows == q + 2 * kv;
    const int64_t section[] = {fused ? q : row->rows, fused ? kv : 0, fused ? kv : 0};
    int64_t at = 0;

    for (size_t i = 0; i < ARRAY_LEN(section); i++) {
        int64_t n = section[i] / l->cuts;

        add_slice(l, t, at + n * l->cut_rank, n);
        at += section[i];
    }
}

static void add_slices(struct layout *l, struct tensor *t, const struct row *row,
                       const struct model_config *c)
{
    int64_t each = vocab_rows(l, row->rows);
    int64_t first = each * l->cut_rank < row->rows ? each * l->cut_rank : row->rows;

    switch (cut_of(t->kind)) {
    case CUT_ROWS:
        add_cut_rows(l, t, row, c);
        break;
    case CUT_VOCAB:
        add_slice(l, t, first, row->rows - first < each ? row->rows - first : each);
        break;
    case CUT_COLUMNS:
    case COPIED:
        add_slice(l, t, 0, row->rows);
        break;
    }
}

static void add_rows(struct layout *l, const struct model_config *c, const char *prefix,
                     bool transposed, const struct row *row, size_t n)
{
    struct tensor *t = NULL;

    for (size_t i = 0; i < n; i++) {
        int64_t cols = row[i].cols == 0 ? 1 : row[i].cols;
        struct hub_tensor *h = &l->hub[l->hubs];

        if (row[i].rows == 0) {
            continue;
        }
        if (t == NULL || t->kind != row[i].kind) {
            t = add_tensor(l, row[i].kind, cols);
        }
        *h = (struct hub_tensor){.tensor = l->tensors - 1,
                                 .first_row = t->whole_rows,
                                 .rows = row[i].rows,
                                 .cols = cols,
                                 .matrix = row[i].cols != 0,
                                 .transposed = transposed && row[i].cols != 0};
        snprintf(h->name, sizeof h->name, "%s%s", prefix, row[i].name);
        add_slices(l, t, &row[i], c);
        l->hubs++;
        l->parameters += h->rows * cols;
        t->whole_rows += h->rows;
        l->size = t->offset + round_up(t->rows * t->cols, ALIGN_ELEMENTS);
    }
}

/* The embedding and the head have rows that no token uses. */
static void pad_vocab(struct layout *l)
{
    struct tensor *t = &l->tensor[l->group[l->groups].first_tensor];

    t->rows = vocab_rows(l, t->whole_rows);
    l->size = t->offset + round_up(t->rows * t->cols, ALIGN_ELEMENTS);
}

static void end_group(struct layout *l, int world)
{
    struct group *g = &l->group[l->groups++];

    g->size = round_up(l->size - g->offset, (int64_t)world * ALIGN_ELEMENTS);
    l->size = g->offset + g->size;
    for (int i = 0; i < g->tensors; i++) {
        const struct tensor *t = &l->tensor[g->first_tensor + i];

        if (t->kind < T_NORM1_G) {
            g->decayed = t->offset + round_up(t->rows * t->cols, ALIGN_ELEMENTS) - g->offset;
        }
    }
}

/* --- the families ----------------------------------------------------------------------------- */

static void add_gpt2_block(struct layout *l, const struct model_config *c, int64_t block)
{
    int64_t qkv = (c->heads + 2 * c->kv_heads) * c->head_dim;
    const struct row row[] = {
        {T_QKV_W, "attn.c_attn.weight", qkv, c->hidden},
        {T_PROJ_W, "attn.c_proj.weight", c->hidden, c->heads * c->head_dim},
        {T_FC_W, "mlp.c_fc.weight", c->ffn, c->hidden},
        {T_OUT_W, "mlp.c_proj.weight", c->hidden, c->ffn},
        {T_NORM1_G, "ln_1.weight", c->hidden, 0},
        {T_NORM1_B, "ln_1.bias", c->hidden, 0},
        {T_QKV_B, "attn.c_attn.bias", qkv, 0},
        {T_PROJ_B, "attn.c_proj.bias", c->hidden, 0},
        {T_NORM2_G, "ln_2.weight", c->hidden, 0},
        {T_NORM2_B, "ln_2.bias", c->hidden, 0},
        {T_FC_B, "mlp.c_fc.bias", c->ffn, 0},
        {T_OUT_B, "mlp.c_proj.bias", c->hidden, 0},
    };
    char prefix[32];

    snprintf(prefix, sizeof prefix, "h.%lld.", (long long)block);
    add_rows(l, c, prefix, true, row, ARRAY_LEN(row));
}

static void add_llama_block(struct layout *l, const struct model_config *c, int64_t block)
{
    int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    bool ab = c->attention_bias, mb = c->mlp_bias;
    const struct row row[] = {
        {T_QKV_W, "self_attn.q_proj.weight", q, c->hidden},
        {T_QKV_W, "self_attn.k_proj.weight", kv, c->hidden},
        {T_QKV_W, "self_attn.v_proj.weight", kv, c->hidden},
        {T_PROJ_W, "self_attn.o_proj.weight", c->hidden, q},
        {T_FC_W, "mlp.gate_proj.weight", c->ffn, c->hidden},
        {T_FC_W, "mlp.up_proj.weight", c->ffn, c->hidden},
        {T_OUT_W, "mlp.down_proj.weight", c->hidden, c->ffn},
        {T_NORM1_G, "input_layernorm.weight", c->hidden, 0},
        {T_QKV_B, "self_attn.q_proj.bias", ab ? q : 0, 0},
        {T_QKV_B, "self_attn.k_proj.bias", ab ? kv : 0, 0},
        {T_QKV_B, "self_attn.v_proj.bias", ab ? kv : 0, 0},
        {T_PROJ_B, "self_attn.o_proj.bias", ab ? c->hidden : 0, 0},
        {T_NORM2_G, "post_attention_layernorm.weight", c->hidden, 0},
        {T_FC_B, "mlp.gate_proj.bias", mb ? c->ffn : 0, 0},
        {T_FC_B, "mlp.up_proj.bias", mb ? c->ffn : 0, 0},
        {T_OUT_B, "mlp.down_proj.bias", mb ? c->hidden : 0, 0},
    };
    char prefix[32];

    snprintf(prefix, sizeof prefix, "model.layers.%lld.", (long long)block);
    add_rows(l, c, prefix, false, row, ARRAY_LEN(row));
}

static void add_embeddings(struct layout *l, const struct model_config *c)
{
    bool llama = c->norm == NORM_RMS;
    const struct row row[] = {
        {T_WTE, llama ? "model.embed_tokens.weight" : "wte.weight", c->vocab, c->hidden},
        {T_WPE, "wpe.weight", c->position == POSITION_LEARNED ? c->context : 0, c->hidden},
    };

    add_rows(l, c, "", false, row, 1);
    pad_vocab(l);
    add_rows(l, c, "", false, row + 1, 1);
}

static void add_end(struct layout *l, const struct model_config *c)
{
    bool llama = c->norm == NORM_RMS;
    const struct row head = {T_HEAD_W, "lm_head.weight", c->vocab, c->hidden};
    const struct row row[] = {
        {T_NORMF_G, llama ? "model.norm.weight" : "ln_f.weight", c->hidden, 0},
        {T_NORMF_B, "ln_f.bias", c->norm == NORM_LAYER ? c->hidden : 0, 0},
    };

    if (!c->tied) {
        add_rows(l, c, "", false, &head, 1);
        pad_vocab(l);
    }
    add_rows(l, c, "", false, row, ARRAY_LEN(row));
}

static void add_model_tensors(struct layout *l, const struct model_config *c, int world)
{
    begin_group(l);
    add_embeddings(l, c);
    end_group(l, world);
    for (int64_t b = 0; b < c->layers; b++) {
        begin_group(l);
        if (c->norm == NORM_RMS) {
            add_llama_block(l, c, b);
        } else {
            add_gpt2_block(l, c, b);
        }
        end_group(l, world);
    }
    begin_group(l);
    add_end(l, c);
    end_group(l, world);
}

void layout_init_cut(struct layout *l, const struct model_config *c, int world, int rank, int ranks)
{
    size_t groups = (size_t)c->layers + 2;
    struct layout whole;

    CHECK(rank >= 0 && rank < ranks);
    *l = (struct layout){.cut_rank = rank, .cuts = ranks};
    l->tensor = mem_array(groups * MAX_HUBS_A_GROUP, sizeof *l->tensor);
    l->hub = mem_array(groups * MAX_HUBS_A_GROUP, sizeof *l->hub);
    l->slice = mem_array(groups * MAX_HUBS_A_GROUP, sizeof *l->slice);
    l->group = mem_array(groups, sizeof *l->group);
    add_model_tensors(l, c, world);
    if (ranks == 1) {
        for (int i = 0; i < l->tensors; i++) {
            l->tensor[i].whole_offset = l->tensor[i].offset;
        }
        return;
    }
    layout_init(&whole, c, world);
    for (int i = 0; i < l->tensors; i++) {
        l->tensor[i].whole_offset = whole.tensor[i].offset;
    }
    layout_fini(&whole);
}

void layout_init(struct layout *l, const struct model_config *c, int world)
{
    layout_init_cut(l, c, world, 0, 1);
}

int layout_can_cut(const struct model_config *c, int64_t ranks, struct err *e)
{
    const struct {
        const char *what;
        int64_t n;
    } cut[] = {
        {"heads", c->heads}, {"key and value heads", c->kv_heads}, {"columns of the MLP", c->ffn}};

    for (size_t i = 0; i < ARRAY_LEN(cut); i++) {
        if (ranks < 1 || cut[i].n % ranks != 0) {
            return err_set(
                e, E_USAGE,
                "--tp %lld: the model's %lld %s cannot be divided evenly by this number of ranks",
                (long long)ranks, (long long)cut[i].n, cut[i].what);
        }
    }
    return 0;
}

void layout_fini(struct layout *l)
{
    free(l->tensor);
    free(l->hub);
    free(l->slice);
    free(l->group);
    *l = (struct layout){0};
}

const struct tensor *layout_find(const struct layout *l, int group, enum tensor_kind kind)
{
    const struct group *g = &l->group[group];

    for (int i = 0; i < g->tensors; i++) {
        if (l->tensor[g->first_tensor + i].kind == kind) {
            return &l->tensor[g->first_tensor + i];
        }
    }
    return NULL;
}

/* The last slice that begins at `offset` or before it; -1: none does. */
static int slice_at(const struct layout *l, int64_t offset)
{
    int low = -1, high = l->slices;

    while (high - low > 1) {
        int mid = low + (high - low) / 2;

        if (l->slice[mid].offset <= offset) {
            low = mid;
        } else {
            high = mid;
        }
    }
    return low;
}

struct numbering layout_number(const struct layout *l, int64_t offset, int64_t n)
{
    int at = slice_at(l, offset);
    const struct hub_slice *s = at < 0 ? NULL : &l->slice[at];
    int64_t end = s == NULL ? 0 : s->offset + s->rows * s->cols, skip;
    const struct tensor *t;
    struct numbering out;

    if (offset >= end) {
        end = at + 1 < l->slices ? l->slice[at + 1].offset : l->size;
        return (struct numbering){.n = min_i64(n, end - offset), .first = -1};
    }
    t = &l->tensor[s->tensor];
    skip = offset - s->offset;
    out = (struct numbering){.n = min_i64(n, end - offset),
                             .first = t->whole_offset + s->col0 +
                                      (l->hub[s->hub].first_row + s->row0) * t->whole_cols};
    if (s->cols == t->whole_cols) {
        out.first += skip;
    } else {
        out.cols = s->cols;
        out.whole_cols = t->whole_cols;
        out.skip = skip;
    }
    return out;
}

/* --- partitions ------------------------------------------------------------------------------- */

int64_t partition_size(const struct layout *l, struct partition p)
{
    return l->size / p.ranks;
}

struct piece partition_group(const struct layout *l, struct partition p, int group)
{
    const struct group *g = &l->group[group];
    int64_t n = g->size / p.ranks;

    return (struct piece){.offset = g->offset + p.rank * n, .n = n, .at = g->offset / p.ranks};
}

static int group_at(const struct layout *l, int64_t offset)
{
    int low = 0, high = l->groups;

    while (high - low > 1) {
        int mid = low + (high - low) / 2;

        if (l->group[mid].offset <= offset) {
            low = mid;
        } else {
            high = mid;
        }
    }
    return low;
}

struct piece partition_clip(const struct layout *l, struct partition p, int64_t offset, int64_t n)
{
    struct piece all = partition_group(l, p, group_at(l, offset));
    int64_t from = offset > all.offset ? offset : all.offset;
    int64_t end = offset + n < all.offset + all.n ? offset + n : all.offset + all.n;

    return (struct piece){
        .offset = from, .n = end > from ? end - from : 0, .at = all.at + from - all.offset};
}
