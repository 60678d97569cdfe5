/* crossentropy.h - loss[r] = -log softmax(logits[r])[target[r]], and its gradient in place of the
 * logits.
 *
 * Columns from vocab to stride are padding: they do not count and get gradient 0. A negative
 * target masks its row: loss 0, gradient 0.
 *
 * shapes   logits, dlogits [rows, stride]; target [rows] int32, below vocab; loss [rows] of
 *          dtype_accum(dt)
 * alias    dlogits may be logits; NULL when only the loss is wanted
 * cost     one read and one write of the logits: a running maximum and sum, then the gradient, in
 *          one launch
 * scale    multiplies the gradient (1 / number of predictions), not the loss
 *
 * Where ranks divide the vocabulary, each has the logits of `vocab` tokens from number `first`
 * on, maybe none. Then _tally summarises a rank's part of each row, the ranks exchange their
 * tallies, and _join computes losses and gradients from all of them, added up in the order of the
 * ranks: the same bits on each.
 *
 * shapes   tally [rows, CROSSENTROPY_TALLY] of dtype_accum(dt), as _tally of the same backend makes
 *          it; tallies [ranks, ...] of all ranks; target as above, of the whole vocabulary
 * cost     one read of the logits each, and for _join one write
 */
#ifndef KERNELS_CROSSENTROPY_H
#define KERNELS_CROSSENTROPY_H

#include "kernels/dev.h"

enum { CROSSENTROPY_TALLY = 3 }; /* numbers of a row's tally */

int crossentropy_cpu(struct kstream *ks, enum dtype dt, void *loss, void *dlogits,
                     const void *logits, const int32_t *target, int64_t rows, int64_t vocab,
                     int64_t stride, double scale);
int crossentropy_tally_cpu(struct kstream *ks, enum dtype dt, void *tally, const void *logits,
                           const int32_t *target, int64_t rows, int64_t first, int64_t vocab,
                           int64_t stride);
int crossentropy_join_cpu(struct kstream *ks, enum dtype dt, void *loss, void *dlogits,
                          const void *logits, const void *tallies, int ranks, const int32_t *target,
                          int64_t rows, int64_t first, int64_t vocab, int64_t stride, double scale);

#endif
