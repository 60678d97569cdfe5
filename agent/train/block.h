/* block.h - one block of a model, forward and backward; and the parts that the model's ends use,
 * too.
 *
 * A block is norm, attention, norm, mlp, each branch added to the residual stream. The
 * configuration decides which norm, mlp, positions and biases; an absent tensor is NULL, which
 * the operations accept.
 */
#ifndef AGENT_TRAIN_BLOCK_H
#define AGENT_TRAIN_BLOCK_H

#include "agent/train/model.h"

/* `out` NULL: the block's result is known already; only what the backward pass reads is computed.
 */
void block_forward(struct model *m, int64_t block, struct block_acts *a, const void *in, void *out,
                   int64_t batch, int64_t seq);
/* m->dstream has the gradient after the block, and gets the one before it. Consumes the
 * activations. */
void block_backward(struct model *m, int64_t block, struct block_acts *a, const void *in,
                    int64_t batch, int64_t seq);

/* A group's tensor of that kind; NULL when this model has none. */
void *block_param(const struct model *m, int group, enum tensor_kind kind);
void *block_grad(const struct model *m, int group, enum tensor_kind kind);

/* The norm with gain `gain`, whose bias follows it. */
void block_norm(struct model *m, void *y, void *mean, void *rstd, const void *x, int group,
                enum tensor_kind gain, int64_t rows);
/* From the gradient in m->dbranch; adds to m->dstream. The result is also the gradient of what
 * was added to the stream before the norm: dbias, of that layer's bias, or NULL. */
void block_norm_backward(struct model *m, const void *x, const void *mean, const void *rstd,
                         int group, enum tensor_kind gain, void *dbias, int64_t rows);

#endif
