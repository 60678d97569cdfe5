#ifndef TYPE
#    include "kernels/layernorm.h"
#    define BODY "kernels/cpu/layernorm.c"
#    include "kernels/cpu/each_real.h"

int layernorm_forward_cpu(struct kstream *ks, enum dtype dt, void *y, void *mean, void *rstd,
                          const void *x, const void *g, const void *b, int64_t rows, int64_t cols,
                          double eps)
{
    (void)ks;
    return EACH_REAL(dt, layernorm_forward, (y, mean, rstd, x, g, b, rows, cols, eps));
}

int layernorm_backward_cpu(struct kstream *ks, enum dtype dt, void *dx, void *dg, void *db,
                           void *dsum, const void *dy, const void *x, const void *g,
                           const void *mean, const void *rstd, int64_t rows, int64_t cols)
{
    (void)ks;
    return EACH_REAL(dt, layernorm_backward, (dx, dg, db, dsum, dy, x, g, mean, rstd, rows, cols));
}

#else

static void FN(layernorm_forward)(elem *y, real *mean, real *rstd, const elem *x, const elem *g,
                                  const elem *b, int64_t rows, int64_t cols, double eps)
{
#    pragma omp parallel for if (rows * cols > PARALLEL_FROM)
    for (int64_t r = 0; r < rows; r++) {
        const elem *in = x + r * cols;
        real sum = 0, sumsq = 0;

#    pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < cols; c++) {
            sum += GET(in[c]);
        }
        mean[r] = sum / (real)cols;
#    pragma omp simd reduction(+ : sumsq)
        for (int64_t c = 0; c < cols; c++) {
            sumsq += (GET(in[c]) - mean[r]) * (GET(in[c]) - mean[r]);
        }
        rstd[r] = 1 / SQRT(sumsq / (real)cols + (real)eps);
        for (int64_t c = 0; c < cols; c++) {
            real n = (GET(in[c]) - mean[r]) * rstd[r];
            y[r * cols + c] = PUT(GET(g[c]) * n + GET(b[c]));
        }
    }
}

/* With n = (x - mean) * rstd and d = dy * g: dx = rstd * (d - avg(d) - n * avg(d * n)). */
static void FN(layernorm_backward)(elem *dx, real *dg, real *db, real *dsum, const elem *dy,
                                   const elem *x, const elem *g, const real *mean, const real *rstd,
                                   int64_t rows, int64_t cols)
{
#    pragma omp parallel for if (rows * cols > PARALLEL_FROM)
    for (int64_t r = 0; r < rows; r++) {
        const elem *in = x + r * cols, *d = dy + r * cols;
        real avg_d = 0, avg_dn = 0;

#    pragma omp simd reduction(+ : avg_d, avg_dn)
        for (int64_t c = 0; c < cols; c++) {
            avg_d += GET(d[c]) * GET(g[c]);
            avg_dn += GET(d[c]) * GET(g[c]) * ((GET(in[c]) - mean[r]) * rstd[r]);
        }
        avg_d /= (real)cols;
        avg_dn /= (real)cols;
        for (int64_t c = 0; c < cols; c++) {
            real n = (GET(in[c]) - mean[r]) * rstd[r], old = GET(dx[r * cols + c]);
            dx[r * cols + c] = PUT(old + rstd[r] * (GET(d[c]) * GET(g[c]) - avg_d - n * avg_dn));
        }
    }
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) {
            dg[c] += GET(dy[r * cols + c]) * ((GET(x[r * cols + c]) - mean[r]) * rstd[r]);
            db[c] += GET(dy[r * cols + c]);
            if (dsum != NULL) {
                dsum[c] += GET(dx[r * cols + c]);
            }
        }
    }
}

#endif
