#include "agent/train/config.h"

#include <jansson.h>
#include <string.h>

#include "kernels/attention.h"

enum { CONFIG_MAX_BYTES = 1 << 20, VOCAB_MULTIPLE = 128 };

static const struct shape {
    const char *name;
    int64_t layers, heads, head_dim, ffn, vocab, context;
} shapes[] = {
#define SHAPE(name, layers, heads, head_dim, ffn, vocab, context)                                  \
    {name, layers, heads, head_dim, ffn, vocab, context},
#include "agent/train/shapes.def"
#undef SHAPE
};

static struct model_config gpt2(void)
{
    return (struct model_config){.norm = NORM_LAYER,
                                 .position = POSITION_LEARNED,
                                 .mlp = MLP_GELU,
                                 .bias = true,
                                 .tied = true,
                                 .norm_eps = 1e-5,
                                 .init_std = 0.02};
}

static struct model_config from_shape(const struct shape *s)
{
    struct model_config c = gpt2();

    c.layers = s->layers;
    c.heads = c.kv_heads = s->heads;
    c.head_dim = s->head_dim;
    c.hidden = s->heads * s->head_dim;
    c.ffn = s->ffn;
    c.vocab = s->vocab;
    c.context = s->context;
    return c;
}

int config_builtin(const char *name, struct model_config *out, struct err *e)
{
    struct buf names = BUF_INIT(4096);
    int rc = E_NOTFOUND;

    for (size_t i = 0; i < ARRAY_LEN(shapes) && rc != 0; i++) {
        buf_addf(&names, " %s", shapes[i].name);
        if (strcmp(name, shapes[i].name) == 0) {
            *out = from_shape(&shapes[i]);
            rc = 0;
        }
    }
    if (rc != 0) {
        rc = err_set(e, E_NOTFOUND, "%.60s: no such shape; built in are%s", name, buf_cstr(&names));
    }
    buf_free(&names);
    return rc;
}

static int in_range(const char *what, int64_t v, int64_t max, struct err *e)
{
    return v >= 1 && v <= max ? 0
                              : err_set(e, E_CONFIG, "config.json: %s is %lld, not 1 to %lld", what,
                                        (long long)v, (long long)max);
}

/* The limits keep every product of two extents far inside 63 bits. */
static int config_check(const struct model_config *c, struct err *e)
{
    const struct {
        const char *what;
        int64_t value, max;
    } limit[] = {
        {"n_layer", c->layers, 1000},      {"n_head", c->heads, 1024},
        {"n_embd", c->hidden, 1 << 18},    {"n_inner", c->ffn, 1 << 20},
        {"vocab_size", c->vocab, 1 << 24}, {"n_positions", c->context, 1 << 24},
    };

    for (size_t i = 0; i < ARRAY_LEN(limit); i++) {
        int rc = in_range(limit[i].what, limit[i].value, limit[i].max, e);
        if (rc != 0) {
            return rc;
        }
    }
    if (c->hidden != c->heads * c->head_dim) {
        return err_set(e, E_CONFIG, "config.json: n_embd is not a multiple of n_head");
    }
    if (c->head_dim > ATTENTION_MAX_HEAD_DIM) {
        return err_set(e, E_UNSUPPORTED, "heads of %lld dimensions; at most %d are supported",
                       (long long)c->head_dim, ATTENTION_MAX_HEAD_DIM);
    }
    if (!(c->norm_eps > 0 && c->norm_eps < 1) || !(c->init_std >= 0 && c->init_std < 10)) {
        return err_set(e, E_CONFIG, "config.json: epsilon or initializer_range is out of range");
    }
    return 0;
}

/* GPT-2's variants that change the arithmetic; absent means the usual. */
static int check_gpt2_variant(const json_t *root, struct err *e)
{
    const json_t *act = json_object_get(root, "activation_function");
    const char *name = json_is_string(act) ? json_string_value(act) : "gelu_new";

    if (strcmp(name, "gelu_new") != 0 && strcmp(name, "gelu_pytorch_tanh") != 0) {
        return err_set(e, E_UNSUPPORTED, "activation_function %.40s: only gelu_new", name);
    }
    if (json_is_true(json_object_get(root, "scale_attn_by_inverse_layer_idx")) ||
        json_is_false(json_object_get(root, "scale_attn_weights")) ||
        json_is_true(json_object_get(root, "add_cross_attention")) ||
        json_is_false(json_object_get(root, "tie_word_embeddings"))) {
        return err_set(e, E_UNSUPPORTED,
                       "config.json: a GPT-2 variant with untied, scaled-by-layer, unscaled or "
                       "cross attention");
    }
    return 0;
}

static double number_or(const json_t *root, const char *key, double otherwise)
{
    const json_t *v = json_object_get(root, key);

    return json_is_number(v) ? json_number_value(v) : otherwise;
}

static int64_t count_or(const json_t *root, const char *key, int64_t otherwise)
{
    const json_t *v = json_object_get(root, key);

    return json_is_integer(v) ? (int64_t)json_integer_value(v) : otherwise;
}

int config_parse(struct slice json, struct model_config *out, struct err *e)
{
    json_error_t why;
    json_t *root = json_loadb(json.p == NULL ? "" : json.p, json.n, JSON_REJECT_DUPLICATES, &why);
    const char *type;
    int rc;

    if (!json_is_object(root)) {
        rc = err_set(e, E_CONFIG, "config.json: %s", root == NULL ? why.text : "not an object");
        goto out;
    }
    type = json_string_value(json_object_get(root, "model_type"));
    if (type == NULL || strcmp(type, "gpt2") != 0) {
        rc = err_set(e, E_UNSUPPORTED, "config.json: model_type %.40s: only gpt2 is supported",
                     type != NULL ? type : "(none)");
        goto out;
    }
    rc = check_gpt2_variant(root, e);
    if (rc != 0) {
        goto out;
    }
    *out = gpt2();
    out->layers = count_or(root, "n_layer", 0);
    out->heads = out->kv_heads = count_or(root, "n_head", 0);
    out->hidden = count_or(root, "n_embd", 0);
    out->head_dim = out->heads > 0 ? out->hidden / out->heads : 0;
    out->ffn = count_or(root, "n_inner", out->hidden < 1 << 20 ? 4 * out->hidden : 0);
    out->vocab = count_or(root, "vocab_size", 0);
    out->context = count_or(root, "n_positions", count_or(root, "n_ctx", 0));
    out->norm_eps = number_or(root, "layer_norm_epsilon", out->norm_eps);
    out->init_std = number_or(root, "initializer_range", out->init_std);
    rc = config_check(out, e);
out:
    json_decref(root);
    return rc;
}

int config_load(const char *path, struct model_config *out, struct err *e)
{
    struct buf text = BUF_INIT(CONFIG_MAX_BYTES);
    int rc = buf_read_file(&text, path, e);

    if (rc == 0) {
        rc = config_parse(buf_slice(&text), out, e);
        if (rc != 0) {
            err_prefix(e, "%s", path);
        }
    }
    buf_free(&text);
    return rc;
}

void config_format(const struct model_config *c, struct buf *out)
{
    buf_addf(out,
             "{\n"
             "  \"architectures\": [\"GPT2LMHeadModel\"],\n"
             "  \"model_type\": \"gpt2\",\n"
             "  \"activation_function\": \"gelu_new\",\n"
             "  \"n_layer\": %lld,\n"
             "  \"n_head\": %lld,\n"
             "  \"n_embd\": %lld,\n"
             "  \"n_inner\": %lld,\n"
             "  \"n_positions\": %lld,\n"
             "  \"vocab_size\": %lld,\n",
             (long long)c->layers, (long long)c->heads, (long long)c->hidden, (long long)c->ffn,
             (long long)c->context, (long long)c->vocab);
    buf_addf(out,
             "  \"layer_norm_epsilon\": %g,\n"
             "  \"initializer_range\": %g,\n"
             "  \"attn_pdrop\": 0.0,\n"
             "  \"embd_pdrop\": 0.0,\n"
             "  \"resid_pdrop\": 0.0,\n"
             "  \"tie_word_embeddings\": true,\n"
             "  \"torch_dtype\": \"float32\"\n"
             "}\n",
             c->norm_eps, c->init_std);
}

int64_t config_padded_vocab(const struct model_config *c)
{
    return (c->vocab + VOCAB_MULTIPLE - 1) / VOCAB_MULTIPLE * VOCAB_MULTIPLE;
}
