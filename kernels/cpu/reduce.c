#ifndef TYPE
#    include "kernels/reduce.h"

/* The order of a sum is fixed by this number, never by the number of threads. */
enum { SLICES = 64 };

#    define BODY "kernels/cpu/reduce.c"
#    include "kernels/cpu/each_real.h"

int sum_add_cpu(struct kstream *ks, enum dtype dt, double *out, const void *x, int64_t n)
{
    (void)ks;
    return EACH_REAL(dt, sum, (out, x, n));
}

int sumsq_add_cpu(struct kstream *ks, enum dtype dt, double *out, const void *x, int64_t n)
{
    (void)ks;
    return EACH_REAL(dt, sumsq, (out, x, n));
}

int clip_scale_cpu(struct kstream *ks, double *norm, double *scale, const double *sumsq,
                   double max_norm, double unscale)
{
    (void)ks;
    *norm = unscale * sqrt(*sumsq);
    *scale = !isfinite(*norm)                   ? (double)NAN
             : max_norm > 0 && *norm > max_norm ? unscale * (max_norm / *norm)
                                                : unscale;
    return 0;
}

#else

static void FN(sum)(double *out, const elem *x, int64_t n)
{
    double part[SLICES] = {0};

#    pragma omp parallel for if (n > PARALLEL_FROM)
    for (int64_t s = 0; s < SLICES; s++) {
        for (int64_t i = n * s / SLICES; i < n * (s + 1) / SLICES; i++) {
            part[s] += (double)GET(x[i]);
        }
    }
    for (int64_t s = 0; s < SLICES; s++) {
        *out += part[s];
    }
}

static void FN(sumsq)(double *out, const elem *x, int64_t n)
{
    double part[SLICES] = {0};

#    pragma omp parallel for if (n > PARALLEL_FROM)
    for (int64_t s = 0; s < SLICES; s++) {
        for (int64_t i = n * s / SLICES; i < n * (s + 1) / SLICES; i++) {
            part[s] += (double)GET(x[i]) * (double)GET(x[i]);
        }
    }
    for (int64_t s = 0; s < SLICES; s++) {
        *out += part[s];
    }
}

#endif
