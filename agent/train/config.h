/* config.h - describes a model by switches, read from and written as the Hub's config.json.
 *
 * A family (model_type gpt2, llama) is a setting of the switches, not a second trainer. What a
 * file requires beyond them is refused by name: a model that computes something other than its
 * authors meant is worse than none.
 *
 * errors   E_CONFIG: not a configuration, or its numbers do not fit together; E_UNSUPPORTED: an
 *          unsupported variant
 */
#ifndef AGENT_TRAIN_CONFIG_H
#define AGENT_TRAIN_CONFIG_H

#include "common/base/buf.h"

enum norm_kind { NORM_LAYER, NORM_RMS };
enum position_kind { POSITION_LEARNED, POSITION_ROPE };
enum mlp_kind { MLP_GELU, MLP_SWIGLU };

enum { VOCAB_BYTES = 256 }; /* a vocabulary of this size is bytes: token = byte */

enum { CONFIG_EOS_MAX = 8 };

struct model_config {
    enum norm_kind norm; /* layer norms have a bias */
    enum position_kind position;
    enum mlp_kind mlp;
    bool attention_bias; /* of attention's linear layers */
    bool mlp_bias;
    bool tied; /* the head is the token embedding */
    int64_t layers;
    int64_t heads;
    int64_t kv_heads;
    int64_t head_dim;
    int64_t hidden;
    int64_t ffn;
    int64_t vocab;
    int64_t context;
    int64_t bos;                 /* the token that begins a text; -1: none */
    int64_t eos[CONFIG_EOS_MAX]; /* the tokens that end one: chat models have several */
    int64_t eos_count;
    double norm_eps;
    double init_std;
    double rope_theta;
    struct rope_scaling { /* Llama 3's stretching of slow frequencies; factor 0: none */
        double factor;
        double low;
        double high;
        int64_t context; /* of the first training */
    } rope_scaling;
};

/* E_NOTFOUND names the shapes that exist. */
MUST_USE int config_builtin(const char *name, struct model_config *out, struct err *e);
MUST_USE int config_parse(struct slice json, struct model_config *out, struct err *e);
MUST_USE int config_load(const char *path, struct model_config *out, struct err *e);
void config_format(const struct model_config *c, struct buf *out);

/* The model_type of this setting of the switches on the Hub. */
const char *config_family(const struct model_config *c);
/* Rows of the embedding: the vocabulary rounded up to a size that suits matrix units. */
int64_t config_padded_vocab(const struct model_config *c);

#endif
