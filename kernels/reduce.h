/* reduce.h - sums over whole buffers, in f64 and always in the same order; and the scale for
 * gradient clipping.
 *
 * sum_add      *out += sum of x
 * sumsq_add    *out += sum of x^2; several buffers add up to one squared norm
 * clip_scale   *norm = unscale * sqrt(*sumsq), *scale = unscale * min(1, max_norm / *norm), unscale
 *              when max_norm <= 0. NaN when the norm is not finite, as it is when one gradient is
 *              not: adamw() then leaves its parameters alone
 *
 * With the loss scaled by s (f16), the gradients are s times too large: unscale is 1 / s, so no
 * pass over them is needed for it. It is 1 otherwise.
 *
 * memory   out, norm, scale and sumsq are f64 in the backend's memory, so that nothing waits for
 *          the host
 */
#ifndef KERNELS_REDUCE_H
#define KERNELS_REDUCE_H

#include "kernels/dev.h"

int sum_add_cpu(struct kstream *ks, enum dtype dt, double *out, const void *x, int64_t n);
int sumsq_add_cpu(struct kstream *ks, enum dtype dt, double *out, const void *x, int64_t n);
int clip_scale_cpu(struct kstream *ks, double *norm, double *scale, const double *sumsq,
                   double max_norm, double unscale);

#endif
