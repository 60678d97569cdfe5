#ifndef TYPE
#    include "kernels/swiglu.h"
#    define BODY "kernels/cpu/swiglu.c"
#    include "kernels/cpu/each_real.h"

int swiglu_forward_cpu(struct kstream *ks, enum dtype dt, void *y, const void *x, int64_t rows,
                       int64_t cols)
{
    (void)ks;
    return EACH_REAL(dt, swiglu_forward, (y, x, rows, cols));
}

int swiglu_backward_cpu(struct kstream *ks, enum dtype dt, void *dx, const void *dy, const void *x,
                        int64_t rows, int64_t cols)
{
    (void)ks;
    return EACH_REAL(dt, swiglu_backward, (dx, dy, x, rows, cols));
}

#else

WIDE static void FN(forward_row)(elem *y, const elem *gate, const elem *up, int64_t cols)
{
#    pragma omp simd
    for (int64_t c = 0; c < cols; c++) {
        real g = GET(gate[c]);
        y[c] = PUT(g / (1 + EXP(-g)) * GET(up[c]));
    }
}

/* d/dgate of gate * s is s + gate * s * (1 - s), s the sigmoid. */
WIDE static void FN(backward_row)(elem *dgate, elem *dup, const elem *dy, const elem *gate,
                                  const elem *up, int64_t cols)
{
#    pragma omp simd
    for (int64_t c = 0; c < cols; c++) {
        real g = GET(gate[c]), u = GET(up[c]), d = GET(dy[c]), s = 1 / (1 + EXP(-g));

        dgate[c] = PUT(d * u * (s + g * s * (1 - s)));
        dup[c] = PUT(d * g * s);
    }
}

static void FN(swiglu_forward)(elem *y, const elem *x, int64_t rows, int64_t cols)
{
#    pragma omp parallel for if (EXPONENT * rows * cols > PARALLEL_FROM)
    for (int64_t r = 0; r < rows; r++) {
        FN(forward_row)(y + r * cols, x + 2 * r * cols, x + (2 * r + 1) * cols, cols);
    }
}

static void FN(swiglu_backward)(elem *dx, const elem *dy, const elem *x, int64_t rows, int64_t cols)
{
#    pragma omp parallel for if (EXPONENT * rows * cols > PARALLEL_FROM)
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = 2 * r * cols;

        FN(backward_row)(dx + at, dx + at + cols, dy + r * cols, x + at, x + at + cols, cols);
    }
}

#endif
