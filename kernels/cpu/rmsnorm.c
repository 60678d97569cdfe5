#ifndef TYPE
#    include "kernels/rmsnorm.h"
#    define BODY "kernels/cpu/rmsnorm.c"
#    include "kernels/cpu/each_real.h"

int rmsnorm_forward_cpu(struct kstream *ks, enum dtype dt, void *y, void *rstd, const void *x,
                        const void *g, int64_t rows, int64_t cols, double eps)
{
    (void)ks;
    return EACH_REAL(dt, rmsnorm_forward, (y, rstd, x, g, rows, cols, eps));
}

int rmsnorm_backward_cpu(struct kstream *ks, enum dtype dt, void *dx, void *dg, void *dsum,
                         const void *dy, const void *x, const void *g, const void *rstd,
                         int64_t rows, int64_t cols)
{
    (void)ks;
    return EACH_REAL(dt, rmsnorm_backward, (dx, dg, dsum, dy, x, g, rstd, rows, cols));
}

#else

static void FN(rmsnorm_forward)(elem *y, real *rstd, const elem *x, const elem *g, int64_t rows,
                                int64_t cols, double eps)
{
#    pragma omp parallel for if (rows * cols > PARALLEL_FROM)
    for (int64_t r = 0; r < rows; r++) {
        const elem *in = x + r * cols;
        real sumsq = 0;

#    pragma omp simd reduction(+ : sumsq)
        for (int64_t c = 0; c < cols; c++) {
            sumsq += GET(in[c]) * GET(in[c]);
        }
        rstd[r] = 1 / SQRT(sumsq / (real)cols + (real)eps);
        for (int64_t c = 0; c < cols; c++) {
            y[r * cols + c] = PUT(GET(g[c]) * (GET(in[c]) * rstd[r]));
        }
    }
}

/* With n = x * rstd and d = dy * g: dx = rstd * (d - n * avg(d * n)). */
static void FN(rmsnorm_backward)(elem *dx, real *dg, real *dsum, const elem *dy, const elem *x,
                                 const elem *g, const real *rstd, int64_t rows, int64_t cols)
{
#    pragma omp parallel for if (rows * cols > PARALLEL_FROM)
    for (int64_t r = 0; r < rows; r++) {
        const elem *in = x + r * cols, *d = dy + r * cols;
        real avg_dn = 0;

#    pragma omp simd reduction(+ : avg_dn)
        for (int64_t c = 0; c < cols; c++) {
            avg_dn += GET(d[c]) * GET(g[c]) * (GET(in[c]) * rstd[r]);
        }
        avg_dn /= (real)cols;
        for (int64_t c = 0; c < cols; c++) {
            real n = GET(in[c]) * rstd[r], old = GET(dx[r * cols + c]);
            dx[r * cols + c] = PUT(old + rstd[r] * (GET(d[c]) * GET(g[c]) - n * avg_dn));
        }
    }
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) {
            dg[c] += GET(dy[r * cols + c]) * (GET(x[r * cols + c]) * rstd[r]);
            if (dsum != NULL) {
                dsum[c] += GET(dx[r * cols + c]);
            }
        }
    }
}

#endif
