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

int crossentropy_tally_cpu(struct kstream *ks, enum dtype dt, void *tally, const void *logits,
                           const int32_t *target, int64_t rows, int64_t first, int64_t vocab,
                           int64_t stride)
{
    (void)ks;
    return EACH_REAL(dt, tally_rows, (tally, logits, target, rows, first, vocab, stride));
}

int crossentropy_join_cpu(struct kstream *ks, enum dtype dt, void *loss, void *dlogits,
                          const void *logits, const void *tallies, int ranks, const int32_t *target,
                          int64_t rows, int64_t first, int64_t vocab, int64_t stride, double scale)
{
    (void)ks;
    return EACH_REAL(
        dt, join_rows,
        (loss, dlogits, logits, tallies, ranks, target, rows, first, vocab, stride, scale));
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

/* --- where the vocabulary is shared out ------------------------------------------------------- */

#    ifndef TALLY
#        define TALLY
/* The maximum, the sum of e^(x - maximum), and the wanted logit, 0 where it is another rank's. */
enum { TALLY_MAX, TALLY_SUM, TALLY_WANTED };
#    endif

WIDE static void FN(tally_row)(real *tally, const elem *x, int64_t wanted, int64_t vocab)
{
    real max = -(real)INFINITY, sum = 0;

    for (int64_t v = 0; v < vocab; v++) {
        max = v == 0 || GET(x[v]) > max ? GET(x[v]) : max;
    }
#    pragma omp simd reduction(+ : sum)
    for (int64_t v = 0; v < vocab; v++) {
        sum += EXP(GET(x[v]) - max);
    }
    tally[TALLY_MAX] = max;
    tally[TALLY_SUM] = sum;
    tally[TALLY_WANTED] = wanted >= 0 && wanted < vocab ? GET(x[wanted]) : 0;
}

static void FN(tally_rows)(real *tally, const elem *logits, const int32_t *target, int64_t rows,
                           int64_t first, int64_t vocab, int64_t stride)
{
#    pragma omp parallel for if (EXPONENT * rows * vocab > PARALLEL_FROM)
    for (int64_t r = 0; r < rows; r++) {
        FN(tally_row)
        (tally + r * CROSSENTROPY_TALLY, logits + r * stride, target[r] - first, vocab);
    }
}

/* One row's tallies, `step` numbers from a rank's to the next one's. */
static void FN(join)(real out[CROSSENTROPY_TALLY], const real *tally, int64_t step, int ranks)
{
    real max = tally[TALLY_MAX], sum = 0, wanted = 0;

    for (int i = 1; i < ranks; i++) {
        max = tally[i * step + TALLY_MAX] > max ? tally[i * step + TALLY_MAX] : max;
    }
    for (int i = 0; i < ranks; i++) {
        const real *t = tally + i * step;

        sum += t[TALLY_SUM] * EXP(t[TALLY_MAX] - max);
        wanted += t[TALLY_WANTED];
    }
    out[TALLY_MAX] = max;
    out[TALLY_SUM] = sum;
    out[TALLY_WANTED] = wanted;
}

WIDE static void FN(join_row)(elem *dx, const elem *x, const real t[CROSSENTROPY_TALLY],
                              int64_t wanted, int64_t vocab, int64_t stride, real scale)
{
    real at_wanted = scale * (EXP(t[TALLY_WANTED] - t[TALLY_MAX]) / t[TALLY_SUM] - 1);

#    pragma omp simd
    for (int64_t v = 0; v < vocab; v++) {
        dx[v] = PUT(scale * (EXP(GET(x[v]) - t[TALLY_MAX]) / t[TALLY_SUM]));
    }
    if (wanted >= 0 && wanted < vocab) {
        dx[wanted] = PUT(at_wanted);
    }
    for (int64_t v = vocab; v < stride; v++) {
        dx[v] = 0;
    }
}

static void FN(join_rows)(real *loss, elem *dlogits, const elem *logits, const real *tallies,
                          int ranks, const int32_t *target, int64_t rows, int64_t first,
                          int64_t vocab, int64_t stride, double scale)
{
#    pragma omp parallel for if (EXPONENT * rows * vocab > PARALLEL_FROM)
    for (int64_t r = 0; r < rows; r++) {
        real t[CROSSENTROPY_TALLY];

        FN(join)(t, tallies + r * CROSSENTROPY_TALLY, rows * CROSSENTROPY_TALLY, ranks);
        loss[r] = target[r] < 0 ? 0 : LOG(t[TALLY_SUM]) + t[TALLY_MAX] - t[TALLY_WANTED];
        if (dlogits != NULL) {
            FN(join_row)
            (dlogits + r * stride, logits + r * stride, t, target[r] < 0 ? -1 : target[r] - first,
             vocab, stride, target[r] < 0 ? 0 : (real)scale);
        }
    }
}

#endif
