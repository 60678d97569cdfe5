/* crossentropy.h - loss[r] = -log softmax(logits[r])[target[r]], and its gradient in place of the logits.
 *
 * Columns from vocab to stride are padding: they take no part and get gradient 0. A negative target masks its row: loss
 * 0, gradient 0.
 *
 * shapes   logits, dlogits [rows, stride]; target [rows] int32, below vocab; loss [rows] of dtype_accum(dt)
 * alias    dlogits may be logits; NULL when only the loss is wanted
 * cost     one read and one write of the logits: a running maximum and sum, then the gradient, in one launch
 * scale    multiplies the gradient (1 / number of predictions), not the loss
 */
#ifndef KERNELS_CROSSENTROPY_H
#define KERNELS_CROSSENTROPY_H

#include "kernels/dev.h"

int crossentropy_cpu(struct kstream *ks, enum dtype dt, void *loss, void *dlogits,
                     const void *logits, const int32_t *target, int64_t rows, int64_t vocab,
                     int64_t stride, double scale);

#endif
