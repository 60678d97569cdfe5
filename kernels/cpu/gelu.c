#ifndef TYPE
#    include "kernels/gelu.h"
enum { PIECE = 4096 }; /* elements a thread takes at a time */

static inline int64_t piece_at(int64_t n, int64_t i)
{
    return n - i < PIECE ? n - i : PIECE;
}

#    define BODY "kernels/cpu/gelu.c"
#    include "kernels/cpu/each_real.h"

int gelu_forward_cpu(struct kstream *ks, enum dtype dt, void *y, const void *x, int64_t n)
{
    (void)ks;
    return EACH_REAL(dt, gelu_forward, (y, x, n));
}

int gelu_backward_cpu(struct kstream *ks, enum dtype dt, void *dx, const void *dy, const void *x,
                      int64_t n)
{
    (void)ks;
    return EACH_REAL(dt, gelu_backward, (dx, dy, x, n));
}

#else

static const real FN(sqrt_2_pi) = (real)0.79788456080286535588;
static const real FN(cubic) = (real)0.044715;

WIDE static void FN(forward_piece)(elem *y, const elem *in, int64_t n)
{
#    pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        real x = GET(in[i]), u = FN(sqrt_2_pi) * (x + FN(cubic) * x * x * x);
        y[i] = PUT(x / (1 + EXP(-2 * u)));
    }
}

WIDE static void FN(backward_piece)(elem *dx, const elem *dy, const elem *in, int64_t n)
{
#    pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        real x = GET(in[i]), u = FN(sqrt_2_pi) * (x + FN(cubic) * x * x * x);
        real du = FN(sqrt_2_pi) * (1 + 3 * FN(cubic) * x * x);
        real s = 1 / (1 + EXP(-2 * u));
        dx[i] = PUT(GET(dy[i]) * (s + x * s * (1 - s) * 2 * du));
    }
}

static void FN(gelu_forward)(elem *y, const elem *x, int64_t n)
{
#    pragma omp parallel for if (EXPONENT * n > PARALLEL_FROM)
    for (int64_t i = 0; i < n; i += PIECE) {
        FN(forward_piece)(y + i, x + i, piece_at(n, i));
    }
}

static void FN(gelu_backward)(elem *dx, const elem *dy, const elem *x, int64_t n)
{
#    pragma omp parallel for if (EXPONENT * n > PARALLEL_FROM)
    for (int64_t i = 0; i < n; i += PIECE) {
        FN(backward_piece)(dx + i, dy + i, x + i, piece_at(n, i));
    }
}

#endif
