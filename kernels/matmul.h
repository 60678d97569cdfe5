/* matmul.h - c = op(a) * op(b) + bias, row-major and dense; with MATMUL_ADD, c += instead.
 *
 * shapes   c [m, n]; op(a) [m, k]; op(b) [k, n]; a is stored [k, m] with MATMUL_TA, b [n, k] with MATMUL_TB;
 *          bias [n] or NULL (not together with MATMUL_ADD)
 * uses     a layer with weight w [out, in]: y = x * w^T is (TB); dx = dy * w is (0); dw += dy^T * x is (TA | ADD)
 * order    the CPU splits c into tiles that depend on the shape alone, so the bits do not depend on the thread count
 * twins    OpenBLAS; cuBLASLt in full f32 (no TF32)
 */
#ifndef KERNELS_MATMUL_H
#define KERNELS_MATMUL_H

#include "kernels/dev.h"

enum { MATMUL_TA = 1, MATMUL_TB = 2, MATMUL_ADD = 4 };

int matmul_cpu(struct kstream *ks, enum dtype dt, void *c, const void *a, const void *b,
               const void *bias, int64_t m, int64_t n, int64_t k, unsigned flags);

#endif
