/* layout.h - where each parameter lies: one flat buffer a block, a table of tensors over them.
 *
 * Group 0 holds the embeddings, groups 1 to layers the blocks, the last one the final norm. Every tensor begins on 256
 * bytes, and every group is padded so that `world` ranks can share it out evenly in 256-byte pieces: groups are the unit of
 * buckets, shards and checkpoints. Inside a group the tensors that weight decay touches come first, so that it is one run.
 *
 * The same offsets serve parameters, gradients and both moments. Matrices are stored [out, in].
 */
#ifndef AGENT_TRAIN_LAYOUT_H
#define AGENT_TRAIN_LAYOUT_H

#include "agent/train/config.h"

enum tensor_kind { /* of a group's tensors; the order is the order in memory */
                   T_WTE,
                   T_WPE,
                   T_QKV_W,
                   T_PROJ_W,
                   T_FC_W,
                   T_OUT_W,
                   T_NORM1_G,
                   T_NORM1_B,
                   T_QKV_B,
                   T_PROJ_B,
                   T_NORM2_G,
                   T_NORM2_B,
                   T_FC_B,
                   T_OUT_B,
                   T_NORMF_G,
                   T_NORMF_B,
                   T_KINDS
};

struct tensor {
    enum tensor_kind kind;
    char name[48]; /* as the Hub calls it */
    int64_t rows;  /* [rows, cols]; a vector has rows 1 */
    int64_t cols;
    int64_t hub_rows; /* without the vocabulary's padding */
    bool matrix;      /* two extents on the Hub */
    bool transposed;  /* stored [in, out] there (GPT-2's Conv1D) */
    bool decay;
    int64_t offset; /* elements from the start of the whole */
};

struct group {
    int64_t offset;  /* elements */
    int64_t size;    /* elements, with padding */
    int64_t decayed; /* the first so many are subject to weight decay */
    int first_tensor;
    int tensors;
};

struct layout {
    struct tensor *tensor;
    int tensors;
    struct group *group;
    int groups;
    int64_t size;       /* elements of everything, with padding */
    int64_t parameters; /* without any padding */
};

void layout_init(struct layout *l, const struct model_config *c, int world);
void layout_fini(struct layout *l);
/* Of the group's tensor of that kind; it must exist. */
int64_t layout_offset(const struct layout *l, int group, enum tensor_kind kind);

#endif
