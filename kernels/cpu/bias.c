#ifndef TYPE
#    include "kernels/bias.h"
#    define BODY "kernels/cpu/bias.c"
#    include "kernels/cpu/each_real.h"

int bias_backward_cpu(struct kstream *ks, enum dtype dt, void *db, const void *dy, int64_t rows,
                      int64_t cols)
{
    (void)ks;
    return EACH_REAL(dt, bias_backward, (db, dy, rows, cols));
}

#else

static void FN(bias_backward)(real *db, const elem *dy, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) {
            db[c] += GET(dy[r * cols + c]);
        }
    }
}

#endif
