/* weights.h - tensors between a model's memory and safetensors files, under the Hub's names and in its layout.
 *
 * Reading accepts the names with and without the family's outer prefix ("transformer.", "model."), f64, f32, bf16 and
 * f16, one file or several with an index, and ignores tensors that the model does not have (attention masks, a tied head).
 * Writing is f32, and knows nothing of the model: a thread can do it from a copy while the model learns on.
 *
 * errors   E_CORRUPT when a tensor is missing or of another shape than the configuration says; E_NOTFOUND without files
 */
#ifndef AGENT_TRAIN_WEIGHTS_H
#define AGENT_TRAIN_WEIGHTS_H

#include "agent/train/layout.h"
#include "agent/train/model.h"
#include "agent/train/tensorset.h"

/* A set of tensors (parameters, a moment) in the model's memory, its type, and what its names begin with. */
struct weights_part {
    const char *prefix;
    char *set;
    struct partition held; /* what of it is here */
    enum dtype dt;
};

/* From dir/<base>.safetensors, or the files of its index. */
MUST_USE int weights_load(struct model *m, const struct weights_part *part, size_t parts,
                          const char *dir, const char *base, struct err *e);

/* The tensor of that name, with or without the family's outer prefix; NULL. */
const struct st_tensor *weights_find(const struct tensorset *s, const char *prefix,
                                     const char *name, const struct safetensors **in);
/* Whether it is what the model wants, and of a type that is read. */
bool weights_same_shape(const struct hub_tensor *h, const struct st_tensor *s);
bool weights_same_type(const struct st_tensor *s);

/* The same, to be written: read() copies n elements from number `offset` of the whole. */
struct weights_source {
    const char *prefix;
    int (*read)(void *arg, int64_t offset, int64_t n, float *out, struct err *e);
    void *arg;
};

/* Files beyond this size are split, as the Hub has them. */
#define WEIGHTS_SPLIT_BYTES (UINT64_C(5) * 1000 * 1000 * 1000)

/* Each file is synced under its own name, and noted in the manifest: for a folder that nobody looks into yet. */
MUST_USE int weights_save(const struct layout *l, const struct weights_source *part, size_t parts,
                          const char *dir, const char *base, uint64_t split_bytes,
                          struct buf *manifest, struct err *e);

#endif
