/* rmsnorm.h - y = g * x / sqrt(mean(x^2) + eps), row by row.
 *
 * shapes   x, y, dx, dy [rows, cols]; g, dg, dsum [cols]; rstd [rows]
 * alias    nothing may overlap
 * adds     backward adds to dx and dg: dx is the gradient of the residual stream that x was read
 *          from
 * sums     backward adds the columns of dx, as it writes them, to dsum: the gradient of a bias
 *          that was added to x before. NULL: not needed
 * cost     forward one read and one write of the matrix; backward three reads (dy, x, dx) and one
 *          write
 * errors   E_UNSUPPORTED on CUDA: more than 8192 columns
 * source   Zhang and Sennrich 2019, arXiv:1910.07467
 */
#ifndef KERNELS_RMSNORM_H
#define KERNELS_RMSNORM_H

#include "kernels/dev.h"

int rmsnorm_forward_cpu(struct kstream *ks, enum dtype dt, void *y, void *rstd, const void *x,
                        const void *g, int64_t rows, int64_t cols, double eps);
int rmsnorm_backward_cpu(struct kstream *ks, enum dtype dt, void *dx, void *dg, void *dsum,
                         const void *dy, const void *x, const void *g, const void *rstd,
                         int64_t rows, int64_t cols);

#endif
