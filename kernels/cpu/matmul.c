#ifndef REAL
#    include <cblas.h>

#    include "kernels/gelu.h"
#    include "kernels/matmul.h"

/* Of c: small enough to share among cores, large enough for OpenBLAS to pack b once for much work. */
enum { TILE_ROWS = 256, TILE_COLS = 512 };

struct job {
    enum dtype dt;
    void *c;
    const void *a, *b;
    int64_t m, n, k;
    unsigned flags;
    struct matmul_tail tail;
};

static inline int64_t tile_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#    define BODY "kernels/cpu/matmul.c"
#    include "kernels/cpu/each_real.h"

int matmul_cpu(struct kstream *ks, enum dtype dt, enum dtype out, void *c, const void *a,
               const void *b, int64_t m, int64_t n, int64_t k, unsigned flags,
               const struct matmul_tail *tail)
{
    struct job job = {.dt = dt, .c = c, .a = a, .b = b, .m = m, .n = n, .k = k, .flags = flags};

    (void)ks;
    if (out != dt && out != dtype_accum(dt)) {
        return E_UNSUPPORTED;
    }
    if (tail != NULL) {
        job.tail = *tail;
    }
    CHECK(tail == NULL || (flags & MATMUL_ADD) == 0);
    CHECK(job.tail.pre_gelu == NULL || job.tail.gelu_at == NULL);
    return EACH_REAL(dt, matmul, (&job));
}

#else

/* What the sums of c[at..] start from, when that is not 0. */
static void FN(begin_row)(const struct job *x, real *sum, int64_t at, int64_t j, int64_t cols)
{
    const real *bias = x->tail.bias, *residual = x->tail.residual;

    for (int64_t i = 0; i < cols; i++) {
        sum[i] = (bias != NULL ? bias[j + i] : 0) + (residual != NULL ? residual[at + i] : 0);
    }
}

static void FN(end_row)(const struct job *x, real *sum, int64_t at, int64_t cols)
{
    const real *gelu_at = x->tail.gelu_at;

    if (x->tail.pre_gelu != NULL) {
        (void)gelu_forward_cpu(NULL, x->dt, (real *)x->c + at, sum, cols);
    }
    if (gelu_at != NULL) {
        (void)gelu_backward_cpu(NULL, x->dt, sum, sum, gelu_at + at, cols);
    }
}

/* One tile of c: rows from i, columns from j. */
static void FN(tile)(const struct job *x, int64_t i, int64_t j)
{
    bool ta = (x->flags & MATMUL_TA) != 0, tb = (x->flags & MATMUL_TB) != 0;
    bool begun = x->tail.bias != NULL || x->tail.residual != NULL;
    int64_t m = x->m, n = x->n, k = x->k, at = i * n + j;
    int64_t rows = tile_min(TILE_ROWS, m - i), cols = tile_min(TILE_COLS, n - j);
    const real *a = (const real *)x->a + (ta ? i : i * k);
    const real *b = (const real *)x->b + (tb ? j * k : j);
    real *sum = x->tail.pre_gelu != NULL ? x->tail.pre_gelu : x->c;

    for (int64_t r = 0; begun && r < rows; r++) {
        FN(begin_row)(x, sum + at + r * n, at + r * n, j, cols);
    }
    GEMM(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (int)rows,
         (int)cols, (int)k, 1, a, (int)(ta ? m : k), b, (int)(tb ? k : n),
         begun || (x->flags & MATMUL_ADD) != 0 ? 1 : 0, sum + at, (int)n);
    for (int64_t r = 0; r < rows; r++) {
        FN(end_row)(x, sum + at + r * n, at + r * n, cols);
    }
}

static void FN(matmul)(const struct job *x)
{
#    pragma omp parallel for collapse(2)                                                           \
        schedule(dynamic) if (x->m * x->n * x->k > 16 * PARALLEL_FROM)
    for (int64_t i = 0; i < x->m; i += TILE_ROWS) {
        for (int64_t j = 0; j < x->n; j += TILE_COLS) {
            FN(tile)(x, i, j);
        }
    }
}

#endif
