#ifndef TYPE
#    include "kernels/convert.h"
#    define BODY "kernels/cpu/convert.c"
#    include "kernels/cpu/each_real.h"

int convert_cpu(struct kstream *ks, enum dtype to, void *y, enum dtype from, const void *x,
                int64_t n)
{
    (void)ks;
    return EACH_REAL(from, convert, (to, y, x, n));
}

int convert_stochastic_cpu(struct kstream *ks, enum dtype dt, void *y, const void *x, int64_t n,
                           const struct noise *noise)
{
    (void)ks;
    return EACH_REAL(dt, stochastic, (y, x, n, noise));
}

#else

/* An f32 that rounds to 16 bits as r does. */
static inline float FN(single)(real r)
{
    return DT_REAL == DT_F64 ? float_odd((double)r) : (float)r;
}

static void FN(convert)(enum dtype to, void *y, const elem *x, int64_t n)
{
#    pragma omp parallel for if (n > PARALLEL_FROM)
    for (int64_t i = 0; i < n; i++) {
        real r = GET(x[i]);

        switch (to) {
        case DT_F32:
            ((float *)y)[i] = (float)r;
            break;
        case DT_F64:
            ((double *)y)[i] = (double)r;
            break;
        case DT_BF16:
            ((uint16_t *)y)[i] = bf16_round(FN(single)(r));
            break;
        case DT_F16:
            ((uint16_t *)y)[i] = f16_round(FN(single)(r));
            break;
        }
    }
}

static void FN(stochastic)(elem *y, const real *x, int64_t n, const struct noise *noise)
{
#    pragma omp parallel for if (n > PARALLEL_FROM)
    for (int64_t i = 0; i < n; i++) {
        y[i] = PUT_NOISY(x[i], noise, (uint64_t)i);
    }
}

#endif
