#include "agent/train/layout.h"

#include <stdio.h>
#include <stdlib.h>

enum { ALIGN_ELEMENTS = 128, MAX_HUBS_A_GROUP = 16 }; /* 256 bytes of the smallest elements */

/* A tensor of the Hub's as a row of a family's table: kinds in order, rows of one kind follow each other in memory. */
struct row {
    enum tensor_kind kind;
    const char *name;
    int64_t rows; /* 0: this model has none */
    int64_t cols; /* 0: a vector */
};

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static void begin_group(struct layout *l)
{
    l->group[l->groups] = (struct group){.offset = l->size, .first_tensor = l->tensors};
}

static struct tensor *add_tensor(struct layout *l, enum tensor_kind kind, int64_t cols)
{
    struct tensor *t = &l->tensor[l->tensors++];

    l->group[l->groups].tensors++;
    *t = (struct tensor){.kind = kind, .cols = cols, .offset = l->size};
    return t;
}

static void add_rows(struct layout *l, const char *prefix, bool transposed, const struct row *row,
                     size_t n)
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
                                 .first_row = t->rows,
                                 .rows = row[i].rows,
                                 .cols = cols,
                                 .matrix = row[i].cols != 0,
                                 .transposed = transposed && row[i].cols != 0};
        snprintf(h->name, sizeof h->name, "%s%s", prefix, row[i].name);
        l->hubs++;
        l->parameters += h->rows * cols;
        t->rows = t->used_rows += h->rows;
        l->size = t->offset + round_up(t->rows * cols, ALIGN_ELEMENTS);
    }
}

/* The embedding and the head have rows that no token uses. */
static void pad_vocab(struct layout *l, const struct model_config *c)
{
    struct tensor *t = &l->tensor[l->group[l->groups].first_tensor];

    t->rows = config_padded_vocab(c);
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

/* --- the families -------------------------------------------------------------------------------------------------- */

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
    add_rows(l, prefix, true, row, ARRAY_LEN(row));
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
    add_rows(l, prefix, false, row, ARRAY_LEN(row));
}

static void add_embeddings(struct layout *l, const struct model_config *c)
{
    bool llama = c->norm == NORM_RMS;
    const struct row row[] = {
        {T_WTE, llama ? "model.embed_tokens.weight" : "wte.weight", c->vocab, c->hidden},
        {T_WPE, "wpe.weight", c->position == POSITION_LEARNED ? c->context : 0, c->hidden},
    };

    add_rows(l, "", false, row, 1);
    pad_vocab(l, c);
    add_rows(l, "", false, row + 1, 1);
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
        add_rows(l, "", false, &head, 1);
        pad_vocab(l, c);
    }
    add_rows(l, "", false, row, ARRAY_LEN(row));
}

void layout_init(struct layout *l, const struct model_config *c, int world)
{
    size_t groups = (size_t)c->layers + 2;

    *l = (struct layout){0};
    l->tensor = mem_array(groups * MAX_HUBS_A_GROUP, sizeof *l->tensor);
    l->hub = mem_array(groups * MAX_HUBS_A_GROUP, sizeof *l->hub);
    l->group = mem_array(groups, sizeof *l->group);

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

void layout_fini(struct layout *l)
{
    free(l->tensor);
    free(l->hub);
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

/* --- partitions ---------------------------------------------------------------------------------------------------------- */

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
