/* config.h - what a model is: one description with switches, read from and written as the Hub's config.json.
 *
 * A family is a setting of the switches, not a second trainer. GPT-2's setting is the one that the operations cover now;
 * config_check() refuses the others by name.
 *
 * errors   E_CONFIG: not a configuration, or its numbers do not fit together; E_UNSUPPORTED: a family we cannot run
 */
#ifndef AGENT_TRAIN_CONFIG_H
#define AGENT_TRAIN_CONFIG_H

#include "common/base/buf.h"

enum norm_kind { NORM_LAYER, NORM_RMS };
enum position_kind { POSITION_LEARNED, POSITION_ROPE };
enum mlp_kind { MLP_GELU, MLP_SWIGLU };

enum { VOCAB_BYTES = 256 }; /* a vocabulary of this size is bytes: token = byte */

struct model_config {
    enum norm_kind norm;
    enum position_kind position;
    enum mlp_kind mlp;
    bool bias; /* of the linear layers */
    bool tied; /* the head is the token embedding */
    int64_t layers;
    int64_t heads;
    int64_t kv_heads;
    int64_t head_dim;
    int64_t hidden;
    int64_t ffn;
    int64_t vocab;
    int64_t context;
    double norm_eps;
    double init_std;
};

/* E_NOTFOUND names the shapes that exist. */
MUST_USE int config_builtin(const char *name, struct model_config *out, struct err *e);
MUST_USE int config_parse(struct slice json, struct model_config *out, struct err *e);
MUST_USE int config_load(const char *path, struct model_config *out, struct err *e);
void config_format(const struct model_config *c, struct buf *out);

/* Rows of the embedding: the vocabulary rounded up to what matrix units like. */
int64_t config_padded_vocab(const struct model_config *c);

#endif
