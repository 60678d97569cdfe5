/* layout.h - the place of each parameter: one flat buffer per block, a table of tensors in them,
 * and the Hub's names.
 *
 * Group 0 has the embeddings, groups 1 to layers the blocks, the last one the final norm and the
 * head, unless that is the embedding again. Every tensor begins at a multiple of 256 bytes, and
 * every group is padded so that `world` ranks can divide it evenly in such pieces: groups are the
 * unit of buckets, shards and checkpoints. Inside a group the tensors with weight decay come
 * first, so that they are one run.
 *
 * The same offsets serve parameters, gradients and both moments. Matrices are stored [out, in].
 * On the Hub some of our tensors are several (Llama's q, k and v): hub[] lists those, each a run
 * of rows of one of ours.
 *
 * Tensor parallel ranks divide a model: each has its own layout, in which every tensor is a part
 * of the whole one, and all of these layouts have the same offsets. slice[] says which rectangle
 * of a Hub's tensor is where.
 *
 *     by rows      qkv (each of q, k and v by heads), fc (gate and up apart), with their biases;
 *                  the embedding and the head, whose vocabulary is padded so that each rank has
 *                  as many rows
 *     by columns   proj, out
 *     copied       norms, positions, the biases of proj and out
 */
#ifndef AGENT_TRAIN_LAYOUT_H
#define AGENT_TRAIN_LAYOUT_H

#include "agent/train/config.h"

enum tensor_kind { /* of a group's tensors, in the order of memory */
                   T_WTE,
                   T_WPE,
                   T_QKV_W, /* q, k, v */
                   T_PROJ_W,
                   T_FC_W, /* with SwiGLU: gate, up */
                   T_OUT_W,
                   T_HEAD_W,
                   T_NORM1_G, /* from here on vectors, without weight decay */
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
    int64_t rows; /* [rows, cols]; of a vector cols is 1 */
    int64_t cols;
    int64_t used_rows; /* without the vocabulary's padding */
    int64_t offset;    /* elements from the start of the whole */
    /* Of the whole tensor; the same as above if it is not divided. */
    int64_t whole_rows; /* without the vocabulary's padding */
    int64_t whole_cols;
    int64_t whole_offset; /* in the layout of the undivided model */
    bool copied;          /* each tensor parallel rank has all of it */
};

/* As in the file: the whole, of which slice[] lists the parts that are here. */
struct hub_tensor {
    char name[64];
    int tensor;        /* which one of ours */
    int64_t first_row; /* of the whole one */
    int64_t rows;
    int64_t cols;
    bool matrix;     /* it has two dimensions in the file */
    bool transposed; /* [in, out] there (GPT-2's Conv1D) */
};

/* A rectangle of a Hub's tensor: whole rows of one of ours, so it is one run. In the order of the
 * Hub's tensors; in an undivided model each of these is one slice. */
struct hub_slice {
    int hub;
    int tensor;   /* the Hub's tensor's */
    int64_t row0; /* in the Hub's tensor, as all four */
    int64_t rows;
    int64_t col0;
    int64_t cols;
    int64_t offset; /* elements from the start of the whole */
};

struct group {
    int64_t offset;  /* elements */
    int64_t size;    /* elements, with padding */
    int64_t decayed; /* the first so many have weight decay */
    int first_tensor;
    int tensors;
};

struct layout {
    struct tensor *tensor;
    int tensors;
    struct hub_tensor *hub;
    int hubs;
    struct hub_slice *slice;
    int slices;
    struct group *group;
    int groups;
    int64_t size;       /* elements of everything, with padding */
    int64_t parameters; /* of the undivided model, without any padding */
    int cut_rank;       /* the tensor parallel rank of this layout */
    int cuts;           /* 1: the model is not divided */
};

/* One rank's part of a set of tensors: an equal piece of each group, rank 0's first. Its buffer
 * has the pieces one after another. With ranks 1 that is the whole layout. */
struct partition {
    int rank;
    int ranks;
};

/* A run of elements inside one group, and its place in a partition's buffer. */
struct piece {
    int64_t offset; /* from the start of the whole */
    int64_t n;      /* 0: the partition has none of it */
    int64_t at;
};

void layout_init(struct layout *l, const struct model_config *c, int world);
/* The layout of one of so many tensor parallel ranks of a model. */
void layout_init_cut(struct layout *l, const struct model_config *c, int world, int rank,
                     int ranks);
/* E_USAGE says why a model cannot be divided among so many. */
MUST_USE int layout_can_cut(const struct model_config *c, int64_t ranks, struct err *e);
void layout_fini(struct layout *l);
/* The group's tensor of that kind, or NULL. */
const struct tensor *layout_find(const struct layout *l, int group, enum tensor_kind kind);

/* How a run of elements is numbered in the layout of the undivided model: consecutively, or, with
 * cols, in rows of that width out of whole_cols, of which `skip` elements precede the run. */
struct numbering {
    int64_t n; /* elements of the run */
    /* the number of the first one, or of the first of the rows; -1: they are padding */
    int64_t first;
    int64_t cols;
    int64_t whole_cols;
    int64_t skip;
};

/* The longest run from `offset` on, of at most n elements. */
struct numbering layout_number(const struct layout *l, int64_t offset, int64_t n);

/* Elements of a partition's buffer. */
int64_t partition_size(const struct layout *l, struct partition p);
/* Its part of a group. */
struct piece partition_group(const struct layout *l, struct partition p, int group);
/* Its part of a run of elements inside one group. */
struct piece partition_clip(const struct layout *l, struct partition p, int64_t offset, int64_t n);

#endif
