/* tensor_parallel.h - a model whose matrices are divided over ranks that work on the same samples
 * (--tp).
 *
 * Each rank computes some of attention's heads, some of the MLP's columns and the logits of some
 * of the vocabulary's tokens (layout.h). Of the layers between (residual stream, norms) each rank
 * has some of the rows, in the order of the ranks: sequence parallelism. So around each pair of
 * divided layers rows are gathered, and the ranks' partial sums are scattered:
 *
 *     forward    norm of own rows | gather | qkv, attention, proj: partial sums
 *                | scatter: own rows, summed | residual
 *                the same around fc and out; the embedding's rows are scattered, the head's
 *                gathered
 *     backward   own rows of the gradient | gather | ... | scatter; a norm's output is gathered
 *                once more
 *
 * Gathered rows and partial sums share one buffer, m->wide, in turn. Gradients of tensors of
 * which all ranks have a copy (norms, biases of proj and out) are sums over own rows, and so are
 * summed over the ranks; the position table's are computed from all rows on each. They are summed
 * once a step, over all ranks together, so that copies have the same bits in whatever order a
 * library adds.
 *
 * A model that is not divided has all rows, and these functions do nothing.
 *
 * threads  the model's; collectives are on its stream, because what follows waits for them
 * errors   kept in the model, as those of its operations
 * source   Korthikanti et al. 2022, arXiv:2205.05198
 */
#ifndef AGENT_TRAIN_TENSOR_PARALLEL_H
#define AGENT_TRAIN_TENSOR_PARALLEL_H

#include "agent/train/model.h"

/* The number of this rank's rows, out of so many. */
int64_t tp_rows(const struct model *m, int64_t rows);
/* All rows, of which `own` are this rank's: valid until m->wide is written again. */
const void *tp_gather(struct model *m, const void *own, int64_t rows);
/* The buffer for the partial sums of all rows that tp_scatter() sums into `own`. */
void *tp_sums(const struct model *m, void *own);
void tp_scatter(struct model *m, void *own, int64_t rows);

/* The tokens as this rank's rows of the embedding, -1 for those of others; host memory, valid
 * until the next call. */
const int32_t *tp_tokens(struct model *m, const int32_t *token, int64_t rows);
/* crossentropy.h on m->logits, which become gradients in training. */
void tp_crossentropy(struct model *m, void *loss, const int32_t *target, int64_t rows,
                     bool for_training, double scale);
/* Elements of the tensors of which all ranks have a copy. */
int64_t tp_copied(const struct layout *l);
/* After a step's gradients have been reduced over the ranks that divide the samples: sums those
 * of the tensors of which all ranks have a copy. */
void tp_sum_gradients(struct model *m);
/* Adds the squares of gradients (of a group's elements from index `offset` on) to *sum: those of
 * copied tensors only on the first rank. */
void tp_sumsq(struct model *m, double *sum, int group, struct piece p, const char *gradients);
/* On all ranks but the first, sets an f64 in device memory to 0, so that a value that all have is
 * counted once. */
void tp_count_once(struct model *m, double *x);

#endif
