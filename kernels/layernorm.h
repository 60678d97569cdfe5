/* layernorm.h - y = g * (x - mean) / sqrt(var + eps) + b, row by row.
 *
 * shapes   x, y, dx, dy [rows, cols]; g, b, dg, db, dsum [cols]; mean, rstd [rows]
 * alias    nothing may overlap
 * adds     backward adds to dx, dg and db: dx is the gradient of the residual stream that x was
 *          read from
 * sums     backward adds the columns of dx, as it writes them, to dsum: the gradient of a bias
 *          that was added to x before. NULL: not needed
 * cost     forward one read and one write of the matrix; backward three reads (dy, x, dx) and one
 *          write
 * errors   E_UNSUPPORTED on CUDA: more than 8192 columns
 * source   Ba, Kiros, Hinton 2016, arXiv:1607.06450
 */
#ifndef KERNELS_LAYERNORM_H
#define KERNELS_LAYERNORM_H

#include "kernels/dev.h"

int layernorm_forward_cpu(struct kstream *ks, enum dtype dt, void *y, void *mean, void *rstd,
                          const void *x, const void *g, const void *b, int64_t rows, int64_t cols,
                          double eps);
int layernorm_backward_cpu(struct kstream *ks, enum dtype dt, void *dx, void *dg, void *db,
                           void *dsum, const void *dy, const void *x, const void *g,
                           const void *mean, const void *rstd, int64_t rows, int64_t cols);

#endif
