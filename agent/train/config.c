#include "agent/train/config.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/attention.h"

/* The limits keep every product of two extents far inside 63 bits. */
enum {
    CONFIG_MAX_BYTES = 1 << 20,
    VOCAB_MULTIPLE = 128,
    MAX_LAYERS = 1000,
    MAX_HEADS = 1024,
    MAX_HIDDEN = 1 << 18,
    MAX_FFN = 1 << 20,
    MAX_VOCAB = 1 << 24,
    MAX_CONTEXT = 1 << 24,
};

/* --- the built-in shapes ---------------------------------------------------------------------- */

#define GPT                                                                                        \
    .norm = NORM_LAYER, .position = POSITION_LEARNED, .mlp = MLP_GELU, .attention_bias = true,     \
    .mlp_bias = true, .tied = true, .norm_eps = 1e-5, .init_std = 0.02
#define GPT2 GPT, .vocab = 50257, .context = 1024, .bos = 50256, .eos = {50256}, .eos_count = 1
#define LLAMA                                                                                      \
    .norm = NORM_RMS, .position = POSITION_ROPE, .mlp = MLP_SWIGLU, .norm_eps = 1e-5,              \
    .init_std = 0.02
#define LLAMA3                                                                                     \
    LLAMA, .vocab = 128256, .context = 131072, .rope_theta = 500000, .bos = 128000,                \
           .eos = {128001}, .eos_count = 1

static const struct shape {
    const char *name;
    struct model_config config;
} shapes[] = {
#define SHAPE(name, ...) {name, {__VA_ARGS__}},
#include "agent/train/shapes.def"
#undef SHAPE
};

int config_builtin(const char *name, struct model_config *out, struct err *e)
{
    struct buf names = BUF_INIT(4096);
    int rc = E_NOTFOUND;

    for (size_t i = 0; i < ARRAY_LEN(shapes) && rc != 0; i++) {
        buf_addf(&names, " %s", shapes[i].name);
        if (strcmp(name, shapes[i].name) == 0) {
            *out = shapes[i].config;
            rc = 0;
        }
    }
    if (rc != 0) {
        rc = err_set(e, E_NOTFOUND, "%.60s: there is no such shape; the built-in ones are%s", name,
                     buf_cstr(&names));
    }
    buf_free(&names);
    return rc;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Reads members of an object and keeps the first error, so that a family is a plain list of its
 * members. */
struct reader {
    const json_t *object;
    int rc;
    struct err *e;
};

enum { REQUIRED = -1 }; /* in place of a default */

/* NULL when absent: in the Hub's files null says the same. */
static const json_t *member(struct reader *r, const char *key, bool required)
{
    const json_t *v = json_object_get(r->object, key);

    if (v != NULL && !json_is_null(v)) {
        return v;
    }
    if (required && r->rc == 0) {
        r->rc = err_set(r->e, E_CONFIG, "config.json: %s is missing", key);
    }
    return NULL;
}

static void config_error(struct reader *r, const char *key, const char *what)
{
    if (r->rc == 0) {
        r->rc = err_set(r->e, E_CONFIG, "config.json: %s is not %s", key, what);
    }
}

static int64_t read_count(struct reader *r, const char *key, int64_t otherwise, int64_t max)
{
    const json_t *v = member(r, key, otherwise == REQUIRED);

    if (v == NULL) {
        return otherwise == REQUIRED ? 1 : otherwise;
    }
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > max) {
        char what[64];

        snprintf(what, sizeof what, "a whole number from 1 to %lld", (long long)max);
        config_error(r, key, what);
        return 1;
    }
    return (int64_t)json_integer_value(v);
}

/* In (low, high); `otherwise` negative: required. */
static double read_real(struct reader *r, const char *key, double otherwise, double low,
                        double high)
{
    const json_t *v = member(r, key, otherwise < 0);

    if (v == NULL) {
        return otherwise;
    }
    if (!json_is_number(v) || !(json_number_value(v) > low && json_number_value(v) < high)) {
        char what[64];

        snprintf(what, sizeof what, "a number between %g and %g", low, high);
        config_error(r, key, what);
        return otherwise;
    }
    return json_number_value(v);
}

static bool read_bool(struct reader *r, const char *key, bool otherwise)
{
    const json_t *v = member(r, key, false);

    if (v != NULL && !json_is_boolean(v)) {
        config_error(r, key, "true or false");
    }
    return v == NULL ? otherwise : json_is_true(v);
}

/* A text that must be one of two spellings, the first when absent. */
static void read_only(struct reader *r, const char *key, const char *one, const char *two)
{
    const json_t *v = member(r, key, false);
    const char *text = v == NULL ? one : json_string_value(v);

    if (r->rc == 0 && (text == NULL || (strcmp(text, one) != 0 && strcmp(text, two) != 0))) {
        r->rc = err_set(r->e, E_UNSUPPORTED, "config.json: %s is %.40s, but only %s is supported",
                        key, text != NULL ? text : "not a text", one);
    }
}

/* A flag that changes the arithmetic in a way we do not have. */
static void read_never(struct reader *r, const char *key, bool usual)
{
    if (read_bool(r, key, usual) != usual && r->rc == 0) {
        r->rc = err_set(r->e, E_UNSUPPORTED, "config.json: %s %s is not supported", key,
                        usual ? "false" : "true");
    }
}

static int64_t token_of(const json_t *v, int64_t vocab)
{
    return json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) < vocab
               ? (int64_t)json_integer_value(v)
               : -1;
}

/* One token, or a list of them; more than we keep, and what is none, is passed over. */
static int64_t read_tokens(struct reader *r, const char *key, int64_t vocab, int64_t *out,
                           int64_t most)
{
    const json_t *v = member(r, key, false);
    size_t all = json_is_array(v) ? json_array_size(v) : 1;
    int64_t n = 0;

    for (size_t i = 0; i < all && n < most; i++) {
        out[n] = token_of(json_is_array(v) ? json_array_get(v, i) : v, vocab);
        n += out[n] >= 0;
    }
    return n;
}

static void read_gpt2(struct reader *r, struct model_config *c)
{
    *c = (struct model_config){GPT};
    c->layers = read_count(r, "n_layer", REQUIRED, MAX_LAYERS);
    c->heads = c->kv_heads = read_count(r, "n_head", REQUIRED, MAX_HEADS);
    c->hidden = read_count(r, "n_embd", REQUIRED, MAX_HIDDEN);
    c->head_dim = c->hidden / c->heads;
    c->ffn = read_count(r, "n_inner", 4 * c->hidden, MAX_FFN);
    c->vocab = read_count(r, "vocab_size", REQUIRED, MAX_VOCAB);
    c->context =
        read_count(r, "n_positions", read_count(r, "n_ctx", 1024, MAX_CONTEXT), MAX_CONTEXT);
    c->tied = read_bool(r, "tie_word_embeddings", true);
    c->norm_eps = read_real(r, "layer_norm_epsilon", 1e-5, 0, 1);
    c->init_std = read_real(r, "initializer_range", 0.02, 0, 10);
    read_only(r, "activation_function", "gelu_new", "gelu_pytorch_tanh");
    read_never(r, "scale_attn_weights", true);
    read_never(r, "scale_attn_by_inverse_layer_idx", false);
    read_never(r, "add_cross_attention", false);
    if (r->rc == 0 && c->hidden % c->heads != 0) {
        r->rc = err_set(r->e, E_CONFIG, "config.json: n_embd must be a multiple of n_head");
    }
}

/* Older files have rope_theta and rope_scaling, newer ones both in rope_parameters. */
static void read_rope(struct reader *r, struct model_config *c)
{
    const json_t *newer = member(r, "rope_parameters", false);
    const json_t *scaling = newer != NULL ? newer : member(r, "rope_scaling", false);
    struct reader s = {.object = scaling, .e = r->e};
    const char *type;

    c->rope_theta = read_real(r, "rope_theta", 10000, 0, 1e12);
    if (scaling == NULL || r->rc != 0) {
        return;
    }
    if (!json_is_object(scaling)) {
        config_error(r, newer != NULL ? "rope_parameters" : "rope_scaling", "an object");
        return;
    }
    c->rope_theta = read_real(&s, "rope_theta", c->rope_theta, 0, 1e12);
    type = json_string_value(member(&s, "rope_type", false));
    type = type != NULL ? type : json_string_value(member(&s, "type", false));
    if (type != NULL && strcmp(type, "llama3") == 0) {
        c->rope_scaling.factor = read_real(&s, "factor", REQUIRED, 0, 1e6);
        c->rope_scaling.low = read_real(&s, "low_freq_factor", REQUIRED, 0, 1e6);
        c->rope_scaling.high = read_real(&s, "high_freq_factor", REQUIRED, 0, 1e6);
        c->rope_scaling.context =
            read_count(&s, "original_max_position_embeddings", REQUIRED, MAX_CONTEXT);
        if (s.rc == 0 && !(c->rope_scaling.low < c->rope_scaling.high)) {
            config_error(&s, "low_freq_factor", "below high_freq_factor");
        }
    } else if (type != NULL && strcmp(type, "default") != 0) {
        s.rc = err_set(r->e, E_UNSUPPORTED,
                       "config.json: RoPE scaling is %.40s, but only llama3 is supported", type);
    }
    if (read_real(&s, "partial_rotary_factor", 1, 0, 2) != 1 && s.rc == 0) {
        s.rc = err_set(r->e, E_UNSUPPORTED, "config.json: partial_rotary_factor is not supported");
    }
    r->rc = s.rc;
}

static void read_llama(struct reader *r, struct model_config *c)
{
    *c = (struct model_config){LLAMA};
    c->layers = read_count(r, "num_hidden_layers", REQUIRED, MAX_LAYERS);
    c->heads = read_count(r, "num_attention_heads", REQUIRED, MAX_HEADS);
    c->kv_heads = read_count(r, "num_key_value_heads", c->heads, MAX_HEADS);
    c->hidden = read_count(r, "hidden_size", REQUIRED, MAX_HIDDEN);
    c->head_dim = read_count(r, "head_dim", c->hidden / c->heads, ATTENTION_MAX_HEAD_DIM);
    c->ffn = read_count(r, "intermediate_size", REQUIRED, MAX_FFN);
    c->vocab = read_count(r, "vocab_size", REQUIRED, MAX_VOCAB);
    c->context = read_count(r, "max_position_embeddings", REQUIRED, MAX_CONTEXT);
    c->tied = read_bool(r, "tie_word_embeddings", false);
    c->attention_bias = read_bool(r, "attention_bias", false);
    c->mlp_bias = read_bool(r, "mlp_bias", false);
    c->norm_eps = read_real(r, "rms_norm_eps", 1e-6, 0, 1);
    c->init_std = read_real(r, "initializer_range", 0.02, 0, 10);
    read_only(r, "hidden_act", "silu", "swish");
    read_rope(r, c);
    if (r->rc == 0 && c->heads % c->kv_heads != 0) {
        config_error(r, "num_attention_heads", "a multiple of num_key_value_heads");
    }
    if (r->rc == 0 && c->head_dim % 2 != 0) {
        config_error(r, "head_dim", "even, as RoPE needs it");
    }
}

static void read_any(struct reader *r, struct model_config *c)
{
    const char *type = json_string_value(json_object_get(r->object, "model_type"));

    if (type != NULL && strcmp(type, "gpt2") == 0) {
        read_gpt2(r, c);
    } else if (type != NULL && strcmp(type, "llama") == 0) {
        read_llama(r, c);
    } else {
        r->rc = err_set(r->e, E_UNSUPPORTED,
                        "config.json: model_type is %.40s, but only gpt2 and llama are supported",
                        type != NULL ? type : "(none)");
        return;
    }
    if (read_tokens(r, "bos_token_id", c->vocab, &c->bos, 1) == 0) {
        c->bos = -1;
    }
    c->eos_count = read_tokens(r, "eos_token_id", c->vocab, c->eos, CONFIG_EOS_MAX);
    if (member(r, "quantization_config", false) != NULL && r->rc == 0) {
        r->rc = err_set(r->e, E_UNSUPPORTED, "config.json: quantized weights are not supported");
    }
    if (r->rc == 0 && (c->head_dim < 1 || c->head_dim > ATTENTION_MAX_HEAD_DIM)) {
        r->rc = err_set(r->e, E_UNSUPPORTED,
                        "attention heads have %lld dimensions, but at most %d are supported",
                        (long long)c->head_dim, ATTENTION_MAX_HEAD_DIM);
    }
}

int config_parse(struct slice json, struct model_config *out, struct err *e)
{
    json_error_t why;
    json_t *root = json_loadb(json.p == NULL ? "" : json.p, json.n, JSON_REJECT_DUPLICATES, &why);
    struct reader r = {.object = root, .e = e};

    *out = (struct model_config){0};
    if (json_is_object(root)) {
        read_any(&r, out);
    } else {
        r.rc = err_set(e, E_CONFIG, "config.json: %s", root == NULL ? why.text : "not an object");
    }
    json_decref(root);
    return r.rc;
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

/* --- writing ---------------------------------------------------------------------------------- */

static void add_count(struct buf *out, const char *key, int64_t v)
{
    buf_addf(out, "  \"%s\": %lld,\n", key, (long long)v);
}

/* The fewest digits that read back as the same number, and a point: some readers want a float. */
static void format_real(char text[40], double v)
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, 32, "%.*g", digits, v);
        if (strtod(text, NULL) == v) {
            break;
        }
    }
    if (strpbrk(text, ".e") == NULL) {
        strcat(text, ".0");
    }
}

static void add_real(struct buf *out, const char *key, double v)
{
    char text[40];

    format_real(text, v);
    buf_addf(out, "  \"%s\": %s,\n", key, text);
}

static void add_bool(struct buf *out, const char *key, bool v)
{
    buf_addf(out, "  \"%s\": %s,\n", key, v ? "true" : "false");
}

static void add_config_token(struct buf *out, const char *key, int64_t v)
{
    if (v >= 0) {
        add_count(out, key, v);
    } else {
        buf_addf(out, "  \"%s\": null,\n", key);
    }
}

static void add_tokens(struct buf *out, const char *key, const int64_t *v, int64_t n)
{
    if (n < 2) {
        add_config_token(out, key, n == 1 ? v[0] : -1);
        return;
    }
    buf_addf(out, "  \"%s\": [", key);
    for (int64_t i = 0; i < n; i++) {
        buf_addf(out, "%s%lld", i > 0 ? ", " : "", (long long)v[i]);
    }
    buf_str(out, "],\n");
}

static void format_gpt2(const struct model_config *c, struct buf *out)
{
    buf_str(out, "  \"architectures\": [\"GPT2LMHeadModel\"],\n"
                 "  \"activation_function\": \"gelu_new\",\n");
    add_count(out, "n_layer", c->layers);
    add_count(out, "n_head", c->heads);
    add_count(out, "n_embd", c->hidden);
    add_count(out, "n_inner", c->ffn);
    add_count(out, "n_positions", c->context);
    add_real(out, "layer_norm_epsilon", c->norm_eps);
    add_real(out, "attn_pdrop", 0);
    add_real(out, "embd_pdrop", 0);
    add_real(out, "resid_pdrop", 0);
}

static void format_llama(const struct model_config *c, struct buf *out)
{
    const struct rope_scaling *s = &c->rope_scaling;
    char factor[40], low[40], high[40];

    buf_str(out, "  \"architectures\": [\"LlamaForCausalLM\"],\n"
                 "  \"hidden_act\": \"silu\",\n");
    add_count(out, "num_hidden_layers", c->layers);
    add_count(out, "num_attention_heads", c->heads);
    add_count(out, "num_key_value_heads", c->kv_heads);
    add_count(out, "head_dim", c->head_dim);
    add_count(out, "hidden_size", c->hidden);
    add_count(out, "intermediate_size", c->ffn);
    add_count(out, "max_position_embeddings", c->context);
    add_bool(out, "attention_bias", c->attention_bias);
    add_bool(out, "mlp_bias", c->mlp_bias);
    add_real(out, "rms_norm_eps", c->norm_eps);
    add_real(out, "rope_theta", c->rope_theta);
    if (s->factor > 0) {
        format_real(factor, s->factor);
        format_real(low, s->low);
        format_real(high, s->high);
        buf_addf(out,
                 "  \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": %s, "
                 "\"low_freq_factor\": %s, \"high_freq_factor\": %s, "
                 "\"original_max_position_embeddings\": %lld},\n",
                 factor, low, high, (long long)s->context);
    }
}

void config_format(const struct model_config *c, struct buf *out)
{
    buf_addf(out, "{\n  \"model_type\": \"%s\",\n", config_family(c));
    if (c->norm == NORM_RMS) {
        format_llama(c, out);
    } else {
        format_gpt2(c, out);
    }
    add_count(out, "vocab_size", c->vocab);
    add_config_token(out, "bos_token_id", c->bos);
    add_tokens(out, "eos_token_id", c->eos, c->eos_count);
    add_real(out, "initializer_range", c->init_std);
    add_bool(out, "tie_word_embeddings", c->tied);
    buf_str(out, "  \"torch_dtype\": \"float32\"\n}\n");
}

const char *config_family(const struct model_config *c)
{
    return c->norm == NORM_RMS ? "llama" : "gpt2";
}

int64_t config_padded_vocab(const struct model_config *c)
{
    return (c->vocab + VOCAB_MULTIPLE - 1) / VOCAB_MULTIPLE * VOCAB_MULTIPLE;
}
