#ifndef TYPE
#    include "kernels/orthonormal.h"

#    include "common/base/check.h"
#    define BODY "kernels/cpu/orthonormal.c"
#    include "kernels/cpu/each_real.h"

int orthonormalize_cpu(struct kstream *ks, enum dtype dt, void *x, int64_t rows, int64_t cols,
                       uint64_t seed)
{
    (void)ks;
    CHECK(cols <= rows);
    if (dt == DT_F32) {
        orthonormalize_f32(x, rows, cols, seed, ORTHONORMAL_LEAST_F32);
    } else if (dt == DT_F64) {
        orthonormalize_f64(x, rows, cols, seed, ORTHONORMAL_LEAST_F64);
    }
    return dt == DT_F32 || dt == DT_F64 ? 0 : E_UNSUPPORTED;
}

#elif !NARROW

/* Of two columns, `cols` elements from row to row. */
static double FN(dot)(const real *a, const real *b, int64_t rows, int64_t cols)
{
    double sum = 0;

    for (int64_t r = 0; r < rows; r++) {
        sum += (double)a[r * cols] * (double)b[r * cols];
    }
    return sum;
}

/* What column j has in common with those before it is taken from it. */
static void FN(project)(real *x, int64_t rows, int64_t cols, int64_t j)
{
    for (int64_t i = 0; i < j; i++) {
        double common = FN(dot)(x + i, x + j, rows, cols);

        for (int64_t r = 0; r < rows; r++) {
            real *at = x + r * cols;

            at[j] = (real)((double)at[j] - common * (double)at[i]);
        }
    }
}

static void FN(scale)(real *x, int64_t rows, int64_t cols)
{
    double length = sqrt(FN(dot)(x, x, rows, cols));

    for (int64_t r = 0; length != 0 && r < rows; r++) {
        x[r * cols] = (real)((double)x[r * cols] / length);
    }
}

static void FN(orthonormalize)(real *x, int64_t rows, int64_t cols, uint64_t seed, double least)
{
    for (int64_t j = 0; j < cols; j++) {
        real *column = x + j;
        double before = FN(dot)(column, column, rows, cols);

        FN(project)(x, rows, cols, j);
        FN(project)(x, rows, cols, j);
        if (FN(dot)(column, column, rows, cols) <= before * least * least && isfinite(before)) {
            for (int64_t r = 0; r < rows; r++) {
                column[r * cols] = (real)orthonormal_noise(seed, r, j);
            }
            FN(project)(x, rows, cols, j);
            FN(project)(x, rows, cols, j);
        }
        FN(scale)(column, rows, cols);
        FN(project)(x, rows, cols, j);
        FN(scale)(column, rows, cols);
    }
}

#endif
