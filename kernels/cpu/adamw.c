#ifndef TYPE
#    include "kernels/adamw.h"
#    define BODY "kernels/cpu/adamw.c"
#    include "kernels/cpu/each_real.h"

int adamw_cpu(struct kstream *ks, enum dtype dt, void *p, void *master, void *m, void *v,
              const void *grad, int64_t n, const double *scale, const struct adamw_step *how)
{
    (void)ks;
    if (isnan(*scale)) {
        return 0;
    }
    return EACH_REAL(dt, adamw, (p, master, m, v, grad, n, *scale, how));
}

#else

static void FN(adamw)(elem *p, real *master, real *m, real *v, const real *grad, int64_t n,
                      double scale, const struct adamw_step *how)
{
    const real b1 = (real)how->beta1, b2 = (real)how->beta2, lr = (real)how->lr;
    const real c1 = (real)how->correct1, c2 = (real)how->correct2;
    const real eps = (real)how->eps, decay = (real)how->decay;

#    pragma omp parallel for simd if (parallel : n > PARALLEL_FROM)
    for (int64_t i = 0; i < n; i++) {
        real g = (real)scale * grad[i], w = master != NULL ? master[i] : GET(p[i]);

        m[i] = b1 * m[i] + (1 - b1) * g;
        v[i] = b2 * v[i] + (1 - b2) * g * g;
        w -= lr * (m[i] / c1 / (SQRT(v[i] / c2) + eps) + decay * w);
        if (master != NULL) {
            master[i] = w;
        }
        p[i] = PUT_NOISY(w, &how->noise, (uint64_t)i);
    }
}

#endif
