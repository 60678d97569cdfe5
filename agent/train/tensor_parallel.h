/* tensor_parallel.h - a model whose matrices are cut over ranks that work on the same samples
 * (--tp).
 *
 * Each rank computes some of attention's heads, some of the MLP's columns and the logits of some of
 * the vocabulary's tokens (layout.h). Of what lies between (residual stream, norms) each rank has
 * some of the rows, in the order of the ranks: sequence parallelism. So around each pair of cut
 * layers rows are gathered, and the ranks' partial sums are scattered:
 *
 *     forward    norm of own rows | gather | qkv, attention, proj: partial sums | scatter: own rows, summed | residual
 *                the same around fc and out; the embedding's rows are scattered, the head's gathered
 *     backward   own rows of the gradient | gather | ... | scatter; and what a norm gave is gathered once more
 *
 * Gathered rows and partial sums take turns in one buffer, m->wide. Gradients of what all ranks
 * have a copy of (norms, biases of proj and out) are sums over own rows, and so summed over the
 * ranks; the position table's are made of all rows on each. They are summed once a step, over all
 * ranks at once, so that copies are the same bits whatever order a library adds in.
 *
 * A model that is not cut has all rows, and none of this does anything.
 *
 * threads  the model's; collectives are on its stream, for what follows waits for them
 * errors   kept in the model, as those of its operations
 * source   Korthikanti et al. 2022, arXiv:2205.05198
 */
#ifndef AGENT_TRAIN_TENSOR_PARALLEL_H
#define AGENT_TRAIN_TENSOR_PARALLEL_H

#include "agent/train/model.h"

/* Of so many rows those that this rank has. */
int64_t tp_rows(const struct model *m, int64_t rows);
/* All rows, of which `own` are this rank's: valid until m->wide is written again. */
const void *tp_gather(struct model *m, const void *own, int64_t rows);
/* Where the partial sums of all rows are made that tp_scatter() sums up to `own`. */
void *tp_sums(const struct model *m, void *own);
void tp_scatter(struct model *m, void *own, int64_t rows);

/* The tokens as this rank's rows of the embedding, -1 those of others; host memory, valid until the
 * next call. */
const int32_t *tp_tokens(struct model *m, const int32_t *token, int64_t rows);
/* crossentropy.h, of m->logits, which become gradients when learning. */
void tp_crossentropy(struct model *m, void *loss, const int32_t *target, int64_t rows,
                     bool for_training, double scale);
/* Elements of what all ranks have a copy of. */
int64_t tp_copied(const struct layout *l);
/* After a step's gradients have been summed over the ranks that divide the samples: sums up those
 * of what all ranks have a copy of. */
void tp_sum_gradients(struct model *m);
/* Adds to *sum the squares of gradients (of a group's elements from number `offset` on): of what
 * ranks have copies of, on the first one only. */
void tp_sumsq(struct model *m, double *sum, int group, struct piece p, const char *gradients);
/* On all ranks but the first a f64 in device memory becomes 0: what all have is counted once. */
void tp_count_once(struct model *m, double *x);

#endif
