/* adamw.h - one step of Adam with decoupled weight decay, on a flat run of parameters.
 *
 *     g = scale * grad;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
 *     p -= lr * (m / c1 / (sqrt(v / c2) + eps) + decay * p),   c1 = 1 - b1^t, c2 = 1 - b2^t
 *
 * scale    one f64 in the backend's memory (clip_scale's); NaN skips the step: p, m and v stay as they are
 * shapes   p, m, v, grad [n]
 * source   Loshchilov and Hutter 2019, arXiv:1711.05101
 */
#ifndef KERNELS_ADAMW_H
#define KERNELS_ADAMW_H

#include "kernels/dev.h"

struct adamw_step {
    double lr;
    double beta1;
    double beta2;
    double eps;
    double decay;
    double correct1; /* c1 and c2, computed once a step */
    double correct2;
};

int adamw_cpu(struct kstream *ks, enum dtype dt, void *p, void *m, void *v, const void *grad,
              int64_t n, const double *scale, const struct adamw_step *how);

#endif
