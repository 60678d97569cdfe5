#ifndef REAL
#    include "kernels/swiglu.h"
#    define BODY "kernels/cpu/swiglu.c"
#    include "kernels/cpu/each_real.h"

int swiglu_forward_cpu(struct kstream *ks, enum dtype dt, void *y, const void *x, int64_t rows,
                       int64_t cols)
{
    (void)ks;
    return EACH_REAL(dt, forward, (y, x, rows, cols));
}

int swiglu_backward_cpu(struct kstream *ks, enum dtype dt, void *dx, const void *dy, const void *x,
                        int64_t rows, int64_t cols)
{
    (void)ks;
    return EACH_REAL(dt, backward, (dx, dy, x, rows, cols));
}

#else

WIDE static void FN(forward_row)(real *y, const real *gate, const real *up, int64_t cols)
{
#    pragma omp simd
    for (int64_t c = 0; c < cols; c++) {
        y[c] = gate[c] / (1 + EXP(-gate[c])) * up[c];
    }
}

/* d/dgate of gate * s is s + gate * s * (1 - s), s the sigmoid. */
WIDE static void FN(backward_row)(real *dgate, real *dup, const real *dy, const real *gate,
                                  const real *up, int64_t cols)
{
#    pragma omp simd
    for (int64_t c = 0; c < cols; c++) {
        real g = gate[c], u = up[c], s = 1 / (1 + EXP(-g));

        dgate[c] = dy[c] * u * (s + g * s * (1 - s));
        dup[c] = dy[c] * g * s;
    }
}

static void FN(forward)(real *y, const real *x, int64_t rows, int64_t cols)
{
#    pragma omp parallel for if (rows * cols > PARALLEL_FROM)
    for (int64_t r = 0; r < rows; r++) {
        FN(forward_row)(y + r * cols, x + 2 * r * cols, x + (2 * r + 1) * cols, cols);
    }
}

static void FN(backward)(real *dx, const real *dy, const real *x, int64_t rows, int64_t cols)
{
#    pragma omp parallel for if (rows * cols > PARALLEL_FROM)
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = 2 * r * cols;

        FN(backward_row)(dx + at, dx + at + cols, dy + r * cols, x + at, x + at + cols, cols);
    }
}

#endif
