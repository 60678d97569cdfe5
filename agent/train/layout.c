#include "agent/train/layout.h"

#include <stdio.h>
#include <stdlib.h>

enum { ALIGN_ELEMENTS = 64 }; /* 256 bytes of f32 */

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static struct tensor *add(struct layout *l, enum tensor_kind kind, int64_t rows, int64_t cols)
{
    struct tensor *t = &l->tensor[l->tensors++];

    l->group[l->groups].tensors++;
    *t = (struct tensor){
        .kind = kind, .rows = rows, .cols = cols, .hub_rows = rows, .offset = l->size};
    t->matrix = t->decay = kind <= T_OUT_W;
    l->size += round_up(rows * cols, ALIGN_ELEMENTS);
    return t;
}

static void begin_group(struct layout *l)
{
    l->group[l->groups] = (struct group){.offset = l->size, .first_tensor = l->tensors};
}

static void end_group(struct layout *l, int world)
{
    struct group *g = &l->group[l->groups++];

    g->size = round_up(l->size - g->offset, (int64_t)world * ALIGN_ELEMENTS);
    l->size = g->offset + g->size;
    for (int i = 0; i < g->tensors; i++) {
        const struct tensor *t = &l->tensor[g->first_tensor + i];

        l->parameters += t->hub_rows * t->cols;
        if (t->decay) {
            g->decayed = t->offset + round_up(t->rows * t->cols, ALIGN_ELEMENTS) - g->offset;
        }
    }
}

static void name(struct tensor *t, int64_t block, const char *what)
{
    if (block < 0) {
        snprintf(t->name, sizeof t->name, "%s", what);
    } else {
        snprintf(t->name, sizeof t->name, "h.%lld.%s", (long long)block, what);
    }
}

static void add_block(struct layout *l, const struct model_config *c, int64_t block)
{
    int64_t qkv = (c->heads + 2 * c->kv_heads) * c->head_dim;
    const struct {
        enum tensor_kind kind;
        const char *name;
        int64_t rows, cols;
    } row[] = {
        {T_QKV_W, "attn.c_attn.weight", qkv, c->hidden},
        {T_PROJ_W, "attn.c_proj.weight", c->hidden, c->heads * c->head_dim},
        {T_FC_W, "mlp.c_fc.weight", c->ffn, c->hidden},
        {T_OUT_W, "mlp.c_proj.weight", c->hidden, c->ffn},
        {T_NORM1_G, "ln_1.weight", 1, c->hidden},
        {T_NORM1_B, "ln_1.bias", 1, c->hidden},
        {T_QKV_B, "attn.c_attn.bias", 1, qkv},
        {T_PROJ_B, "attn.c_proj.bias", 1, c->hidden},
        {T_NORM2_G, "ln_2.weight", 1, c->hidden},
        {T_NORM2_B, "ln_2.bias", 1, c->hidden},
        {T_FC_B, "mlp.c_fc.bias", 1, c->ffn},
        {T_OUT_B, "mlp.c_proj.bias", 1, c->hidden},
    };

    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct tensor *t = add(l, row[i].kind, row[i].rows, row[i].cols);

        t->transposed = t->matrix;
        name(t, block, row[i].name);
    }
}

void layout_init(struct layout *l, const struct model_config *c, int world)
{
    struct tensor *t;

    *l = (struct layout){0};
    l->tensor = mem_array((size_t)c->layers * T_KINDS + T_KINDS, sizeof *l->tensor);
    l->group = mem_array((size_t)c->layers + 2, sizeof *l->group);

    begin_group(l);
    t = add(l, T_WTE, config_padded_vocab(c), c->hidden);
    t->hub_rows = c->vocab;
    name(t, -1, "wte.weight");
    name(add(l, T_WPE, c->context, c->hidden), -1, "wpe.weight");
    end_group(l, world);

    for (int64_t b = 0; b < c->layers; b++) {
        begin_group(l);
        add_block(l, c, b);
        end_group(l, world);
    }

    begin_group(l);
    name(add(l, T_NORMF_G, 1, c->hidden), -1, "ln_f.weight");
    name(add(l, T_NORMF_B, 1, c->hidden), -1, "ln_f.bias");
    end_group(l, world);
}

void layout_fini(struct layout *l)
{
    free(l->tensor);
    free(l->group);
    *l = (struct layout){0};
}

int64_t layout_offset(const struct layout *l, int group, enum tensor_kind kind)
{
    const struct group *g = &l->group[group];

    for (int i = 0; i < g->tensors; i++) {
        if (l->tensor[g->first_tensor + i].kind == kind) {
            return l->tensor[g->first_tensor + i].offset;
        }
    }
    CHECK(!"the group has such a tensor");
    return -1;
}
