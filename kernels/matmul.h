/* matmul.h - c = op(a) * op(b), row-major and dense; with MATMUL_ADD, c += instead, with
 * MATMUL_SUB c -=.
 *
 * Without these two flags an epilogue (struct matmul_tail) may follow: what a layer does with the
 * sums before they are stored.
 *
 *     bias         is added to every row
 *     residual     is added
 *     pre_gelu     gets the sums, and c gets their gelu (gelu.h): the backward pass needs the sums
 *     gelu_at      multiplies the sums by gelu's slope at these values: the backward pass; not with
 *                  pre_gelu
 *
 * shapes   c, residual, pre_gelu, gelu_at [m, n]; op(a) [m, k]; op(b) [k, n]; a is stored [k, m]
 *          with MATMUL_TA, b [n, k] with MATMUL_TB; bias [n]
 * dtypes   a, b and bias as dt says; c, residual, pre_gelu and gelu_at as `out` says: dt or
 *          dtype_accum(dt)
 * alias    nothing may overlap
 * bias     where cuBLASLt has no bias epilogue (odd widths, f32 sums), c begins with it: rounded
 *          once more
 * uses     a layer with weight w [out, in]: y = x * w^T is (TB); dx = dy * w is (0); dw += dy^T * x
 *          is (TA | ADD), dw of the accumulation type
 * order    the CPU splits c into tiles that depend on the shape alone, so the bits do not depend on
 *          the thread count
 * twins    OpenBLAS; cuBLASLt in full f32 (no TF32)
 */
#ifndef KERNELS_MATMUL_H
#define KERNELS_MATMUL_H

#include "kernels/dev.h"

enum { MATMUL_TA = 1, MATMUL_TB = 2, MATMUL_ADD = 4, MATMUL_SUB = 8 };

struct matmul_tail { /* NULL: not used */
    const void *bias;
    const void *residual;
    void *pre_gelu;
    const void *gelu_at;
};

/* tail NULL: none. */
int matmul_cpu(struct kstream *ks, enum dtype dt, enum dtype out, void *c, const void *a,
               const void *b, int64_t m, int64_t n, int64_t k, unsigned flags,
               const struct matmul_tail *tail);

/* The algorithms that the stream's products have used so far, as text for a later process on a
 * machine of the same kind: a line that names the machine, then one for each product. "" when
 * there is nothing to choose. */
enum { MATMUL_CHOICES_BYTES = 64 << 10 };
int matmul_choices_cpu(struct kstream *ks, char *text, size_t room);
/* Products use these from now on. Lines for another machine, or for no product, are ignored. */
int matmul_choose_cpu(struct kstream *ks, const char *text);

#endif
