#ifndef REAL
#    include <cblas.h>
#    include <string.h>

#    include "kernels/matmul.h"

/* Of c: small enough to share among cores, large enough for OpenBLAS to pack b once for much work. */
enum { TILE_ROWS = 256, TILE_COLS = 512 };

static inline int64_t tile_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#    define BODY "kernels/cpu/matmul.c"
#    include "kernels/cpu/each_real.h"

int matmul_cpu(struct kstream *ks, enum dtype dt, void *c, const void *a, const void *b,
               const void *bias, int64_t m, int64_t n, int64_t k, unsigned flags)
{
    (void)ks;
    CHECK(bias == NULL || (flags & MATMUL_ADD) == 0);
    return EACH_REAL(dt, matmul, (c, a, b, bias, m, n, k, flags));
}

#else

/* One tile of c: rows from i, columns from j. */
static void FN(tile)(real *c, const real *a, const real *b, const real *bias, int64_t m, int64_t n,
                     int64_t k, unsigned flags, int64_t i, int64_t j)
{
    bool ta = (flags & MATMUL_TA) != 0, tb = (flags & MATMUL_TB) != 0;
    int64_t rows = tile_min(TILE_ROWS, m - i), cols = tile_min(TILE_COLS, n - j);

    for (int64_t r = i; bias != NULL && r < i + rows; r++) {
        memcpy(c + r * n + j, bias + j, (size_t)cols * sizeof *c);
    }
    GEMM(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (int)rows,
         (int)cols, (int)k, 1, ta ? a + i : a + i * k, (int)(ta ? m : k), tb ? b + j * k : b + j,
         (int)(tb ? k : n), bias != NULL || (flags & MATMUL_ADD) != 0 ? 1 : 0, c + i * n + j,
         (int)n);
}

static void FN(matmul)(real *c, const real *a, const real *b, const real *bias, int64_t m,
                       int64_t n, int64_t k, unsigned flags)
{
#    pragma omp parallel for collapse(2) schedule(dynamic) if (m * n * k > 16 * PARALLEL_FROM)
    for (int64_t i = 0; i < m; i += TILE_ROWS) {
        for (int64_t j = 0; j < n; j += TILE_COLS) {
            FN(tile)(c, a, b, bias, m, n, k, flags, i, j);
        }
    }
}

#endif
