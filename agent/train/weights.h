/* weights.h - tensors between a model's memory and safetensors files, under the Hub's names and in its layout.
 *
 * Reading accepts the names with and without GPT-2's "transformer." prefix, f32, bf16 and f16, and ignores tensors that
 * the model does not have (attention masks, a tied head). Writing is f32.
 *
 * errors   E_CORRUPT when a tensor is missing or of another shape than the configuration says
 */
#ifndef AGENT_TRAIN_WEIGHTS_H
#define AGENT_TRAIN_WEIGHTS_H

#include "agent/train/model.h"
#include "common/hash/digest.h"

/* One whole set of tensors (parameters, a moment) and what its names begin with. */
struct weights_part {
    const char *prefix;
    char *whole;
};

MUST_USE int weights_load(struct model *m, const struct weights_part *part, size_t parts,
                          const char *path, struct err *e);
/* The file is written and synced under its own name: for a folder that nobody looks into yet. */
MUST_USE int weights_save(struct model *m, const struct weights_part *part, size_t parts,
                          const char *path, struct digest *digest, struct err *e);

#endif
