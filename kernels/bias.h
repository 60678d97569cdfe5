/* bias.h - db[c] += sum over rows of dy[r][c]: the gradient of a bias.
 *
 * shapes   dy [rows, cols]; db [cols]
 * cost     one read of dy
 */
#ifndef KERNELS_BIAS_H
#define KERNELS_BIAS_H

#include "kernels/dev.h"

int bias_backward_cpu(struct kstream *ks, enum dtype dt, void *db, const void *dy, int64_t rows,
                      int64_t cols);

#endif
