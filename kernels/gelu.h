/* gelu.h - y = x * sigmoid(2u), u = sqrt(2/pi) * (x + 0.044715 x^3): GELU in its tanh form.
 *
 * 0.5 * (1 + tanh u) equals sigmoid(2u), which needs one exp and does not cancel for large negative
 * x.
 *
 * alias    y may be x; dx may be dy
 * source   Hendrycks and Gimpel 2016, arXiv:1606.08415 ("gelu_new" in GPT-2's config.json)
 */
#ifndef KERNELS_GELU_H
#define KERNELS_GELU_H

#include "kernels/dev.h"

int gelu_forward_cpu(struct kstream *ks, enum dtype dt, void *y, const void *x, int64_t n);
int gelu_backward_cpu(struct kstream *ks, enum dtype dt, void *dx, const void *dy, const void *x,
                      int64_t n);

#endif
