#ifndef TYPE
#    include "kernels/crossentropy.h"
#    define BODY "kernels/cpu/crossentropy.c"
#    include "kernels/cpu/each_real.h"

int crossentropy_cpu(struct kstream *ks, enum dtype dt, void *loss, void *dlogits,
                     const void *logits, const int32_t *target, int64_t rows, int64_t vocab,
                     int64_t stride, double scale)
{
    (void)ks;
    return EACH_REAL(dt, rows, (loss, dlogits, logits, target, rows, vocab, stride, scale));
}

#else

WIDE static void FN(row)(real *loss, elem *dx, const elem *x, int32_t target, int64_t vocab,
                         int64_t stride, real scale)
{
    real max = GET(x[0]), sum = 0, wanted;

    for (int64_t v = 1; v < vocab; v++) {
        max = GET(x[v]) > max ? GET(x[v]) : max;
    }
#    pragma omp simd reduction(+ : sum)
    for (int64_t v = 0; v < vocab; v++) {
        sum += EXP(GET(x[v]) - max);
    }
    /* Read before dx, which may be x, is written. */
    wanted = target < 0 ? max : GET(x[target]);
    *loss = target < 0 ? 0 : LOG(sum) + max - wanted;
    if (dx == NULL) {
        return;
    }
    scale = target < 0 ? 0 : scale;
#    pragma omp simd
    for (int64_t v = 0; v < vocab; v++) {
        dx[v] = PUT(scale * (EXP(GET(x[v]) - max) / sum));
    }
    if (target >= 0) {
        dx[target] = PUT(scale * (EXP(wanted - max) / sum - 1));
    }
    for (int64_t v = vocab; v < stride; v++) {
        dx[v] = 0;
    }
}

static void FN(rows)(real *loss, elem *dlogits, const elem *logits, const int32_t *target,
                     int64_t rows, int64_t vocab, int64_t stride, double scale)
{
#    pragma omp parallel for if (EXPONENT * rows * vocab > PARALLEL_FROM)
    for (int64_t r = 0; r < rows; r++) {
        FN(row)
        (loss + r, dlogits == NULL ? NULL : dlogits + r * stride, logits + r * stride, target[r],
         vocab, stride, (real)scale);
    }
}

#endif
