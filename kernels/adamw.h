/* adamw.h - one step of Adam with decoupled weight decay, on a flat run of parameters.
 *
 *     g = scale * grad;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
 *     w -= lr * (m / c1 / (sqrt(v / c2) + eps) + decay * w),   c1 = 1 - b1^t, c2 = 1 - b2^t
 *
 * w are the master weights. p, with which the model computes, becomes the result of
 * convert_stochastic() on them. With master NULL, p is read as well: always for f32 and f64.
 * 16-bit types can be trained so too, with less memory and more noise.
 *
 * cost     one pass: 28 bytes an element with f32 parameters, 30 with masters and a 16-bit copy
 * scale    one f64 in the backend's memory (clip_scale's); NaN skips the step: nothing changes
 * shapes   p, master, m, v, grad [n]
 * dtypes   p as dt says; master, m, v and grad of dtype_accum(dt)
 * alias    nothing may overlap
 * source   Loshchilov and Hutter 2019, arXiv:1711.05101
 */
#ifndef KERNELS_ADAMW_H
#define KERNELS_ADAMW_H

#include "kernels/convert.h"

struct adamw_step {
    double lr;
    double beta1;
    double beta2;
    double eps;
    double decay;
    double correct1; /* c1 and c2, computed once a step */
    double correct2;
    struct noise noise; /* for the 16-bit types: numbers count over the whole model */
};

int adamw_cpu(struct kstream *ks, enum dtype dt, void *p, void *master, void *m, void *v,
              const void *grad, int64_t n, const double *scale, const struct adamw_step *how);

#endif
