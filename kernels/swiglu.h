/* swiglu.h - y = gate * sigmoid(gate) * up, where a row of x is [gate, up], both from one matmul.
 *
 * shapes   x, dx [rows, 2 * cols]; y, dy [rows, cols]
 * alias    dx may be x
 * source   Shazeer 2020, arXiv:2002.05202
 */
#ifndef KERNELS_SWIGLU_H
#define KERNELS_SWIGLU_H

#include "kernels/dev.h"

int swiglu_forward_cpu(struct kstream *ks, enum dtype dt, void *y, const void *x, int64_t rows,
                       int64_t cols);
int swiglu_backward_cpu(struct kstream *ks, enum dtype dt, void *dx, const void *dy, const void *x,
                        int64_t rows, int64_t cols);

#endif
