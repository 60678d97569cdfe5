/* finite.h - an operation's backward pass against central differences of its forward pass, in
 * double.
 *
 * The scalar that is differentiated is sum(weight * y) with random weights, so that the incoming
 * gradient is `weight`.
 */
#ifndef TESTS_UNIT_KERNELS_FINITE_H
#define TESTS_UNIT_KERNELS_FINITE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "common/base/check.h"

static uint64_t finite_seed = 1;

/* In [-1, 1), the same numbers in every run. */
static inline double finite_random(void)
{
    finite_seed = finite_seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(finite_seed >> 11) / (double)(UINT64_C(1) << 52) - 1.0;
}

static inline double *finite_array(int64_t n)
{
    double *x = mem_array((size_t)n + 1, sizeof *x);

    for (int64_t i = 0; i < n; i++) {
        x[i] = finite_random();
    }
    return x;
}

static inline double *finite_zeros(int64_t n)
{
    return mem_array((size_t)n + 1, sizeof(double));
}

static inline double finite_dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* value() computes the scalar anew from what x holds. `base` is what grad held before backward
 * added to it. */
static inline void finite_check(const char *what, double (*value)(void *arg), void *arg, double *x,
                                const double *grad, double base, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double keep = x[i], h = 1e-5 * fmax(1, fabs(keep)), up, down, want;

        x[i] = keep + h;
        up = value(arg);
        x[i] = keep - h;
        down = value(arg);
        x[i] = keep;
        want = (up - down) / (2 * h) + base;
        if (!(fabs(want - grad[i]) <= 1e-6 * fmax(1, fabs(want)))) {
            fail_msg("%s[%lld]: backward says %.12g, differences say %.12g", what, (long long)i,
                     grad[i], want);
        }
    }
}

#endif
