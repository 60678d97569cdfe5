#ifndef TYPE
#    include "kernels/add.h"
#    define BODY "kernels/cpu/add.c"
#    include "kernels/cpu/each_real.h"

int add_cpu(struct kstream *ks, enum dtype dt, void *y, const void *a, const void *b, int64_t n)
{
    (void)ks;
    return EACH_REAL(dt, add, (y, a, b, n));
}

#else

static void FN(add)(elem *y, const elem *a, const elem *b, int64_t n)
{
#    pragma omp parallel for simd if (parallel : n > PARALLEL_FROM)
    for (int64_t i = 0; i < n; i++) {
        y[i] = PUT(GET(a[i]) + GET(b[i]));
    }
}

#endif
