/* block.h - one block of a model, forward and backward; and the pieces that the model's ends are
 * made of, too.
 *
 * A block is norm, attention, norm, mlp, each branch added to the residual stream. Which norm,
 * which mlp, which positions, which biases is the configuration's: an absent tensor is a NULL that
 * the operations understand.
 */
#ifndef AGENT_TRAIN_BLOCK_H
#define AGENT_TRAIN_BLOCK_H

#include "agent/train/model.h"

/* `out` NULL: the block's result is known already, only what the backward pass reads is made. */
void block_forward(struct model *m, int64_t block, struct block_acts *a, const void *in, void *out,
                   int64_t batch, int64_t seq);
/* m->dstream holds the gradient behind the block and is left holding the one before it. Uses up the
 * activations. */
void block_backward(struct model *m, int64_t block, struct block_acts *a, const void *in,
                    int64_t batch, int64_t seq);

/* Of a group's tensor of that kind; NULL when this model has none. */
void *block_param(const struct model *m, int group, enum tensor_kind kind);
void *block_grad(const struct model *m, int group, enum tensor_kind kind);

/* The norm whose gain is `gain` and whose bias follows it. */
void block_norm(struct model *m, void *y, void *mean, void *rstd, const void *x, int group,
                enum tensor_kind gain, int64_t rows);
/* From the gradient in m->dbranch; adds to m->dstream. What that is then, is also the gradient of
 * what was added to the stream in front of the norm: dbias, of that layer's bias, or NULL. */
void block_norm_backward(struct model *m, const void *x, const void *mean, const void *rstd,
                         int group, enum tensor_kind gain, void *dbias, int64_t rows);

#endif
