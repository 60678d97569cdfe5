/* weights.h - loads tensors from safetensors files into a model's memory, under the Hub's names
 * and in its layout.
 *
 * It accepts names with and without the family's outer prefix ("transformer.", "model."), f64,
 * f32, bf16 and f16, one file or several with an index, and ignores tensors that the model does
 * not have (attention masks, a tied head). Of each tensor only the rank's part is read.
 *
 * errors   E_CORRUPT when a tensor is missing or of another shape than the configuration says;
 *          E_NOTFOUND without files
 */
#ifndef AGENT_TRAIN_WEIGHTS_H
#define AGENT_TRAIN_WEIGHTS_H

#include "agent/train/layout.h"
#include "agent/train/model.h"
#include "agent/train/tensorset.h"

/* A set of tensors (parameters, a moment) in the model's memory, its type, and the prefix of its
 * names. */
struct weights_part {
    const char *prefix;
    char *set;
    struct partition held; /* the part of it that is here */
    enum dtype dt;
};

/* From dir/<base>.safetensors, or the files of its index. With `i` everything that is read is
 * verified. */
MUST_USE int weights_load(struct model *m, const struct weights_part *part, size_t parts,
                          const char *dir, const char *base, struct integrity *i, struct err *e);
/* Converts n unaligned f32 numbers of a file to the model's type. */
void weights_narrow(enum dtype dt, const char *from, int64_t n, char *out);

/* The tensor of that name, with or without the family's outer prefix; NULL. */
const struct st_tensor *weights_find(const struct tensorset *s, const char *prefix,
                                     const char *name, const struct safetensors **in);
/* Does it have the model's shape, and a supported type? */
bool weights_same_shape(const struct hub_tensor *h, const struct st_tensor *s);
bool weights_same_type(const struct st_tensor *s);

#endif
