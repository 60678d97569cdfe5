#ifndef TYPE
#    include <cblas.h>
#    include <stdlib.h>

#    include "common/base/check.h"
#    include "kernels/gelu.h"
#    include "kernels/matmul.h"

/* Of c: small enough to share among cores, large enough for OpenBLAS to pack b once for much work.
 * 16-bit operands are widened so many of k at a time. */
enum { TILE_ROWS = 256, TILE_COLS = 512, TILE_K = 256 };

struct job {
    void *c;
    const void *a, *b;
    int64_t m, n, k;
    bool ta, tb;
    bool add; /* to what c holds; `sign` of the product */
    int sign;
    bool accum; /* c and what is shaped like it are of the accumulation type, not of a's */
    struct matmul_tail tail;
};

/* Of c: where it begins, and how far it goes. */
struct tile {
    int64_t i, j, rows, cols;
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
    const struct job job = {.c = c,
                            .a = a,
                            .b = b,
                            .m = m,
                            .n = n,
                            .k = k,
                            .ta = (flags & MATMUL_TA) != 0,
                            .tb = (flags & MATMUL_TB) != 0,
                            .add = (flags & (MATMUL_ADD | MATMUL_SUB)) != 0,
                            .sign = (flags & MATMUL_SUB) != 0 ? -1 : 1,
                            .accum = out != dt,
                            .tail = tail != NULL ? *tail : (struct matmul_tail){0}};

    (void)ks;
    if (out != dt && out != dtype_accum(dt)) {
        return E_UNSUPPORTED;
    }
    CHECK(tail == NULL || !job.add);
    CHECK(job.tail.pre_gelu == NULL || job.tail.gelu_at == NULL);
    return EACH_REAL(dt, matmul, (&job));
}

int matmul_choices_cpu(struct kstream *ks, char *text, size_t room)
{
    (void)ks;
    CHECK(room > 0);
    text[0] = '\0';
    return 0;
}

int matmul_choose_cpu(struct kstream *ks, const char *text)
{
    (void)ks;
    (void)text;
    return 0;
}

#else

static inline real FN(get_out)(const struct job *x, const void *matrix, int64_t at)
{
    return x->accum ? ((const real *)matrix)[at] : GET(((const elem *)matrix)[at]);
}

static void FN(put_row)(const struct job *x, void *matrix, int64_t at, const real *row, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (x->accum) {
            ((real *)matrix)[at + i] = row[i];
        } else {
            ((elem *)matrix)[at + i] = PUT(row[i]);
        }
    }
}

/* What the product is added to. `at` is the row's place in c, j its first column. */
static void FN(begin_row)(const struct job *x, real *sum, int64_t at, int64_t j, int64_t n)
{
    const elem *bias = x->tail.bias;
    const void *residual = x->tail.residual;

    for (int64_t i = 0; i < n; i++) {
        sum[i] = bias != NULL ? GET(bias[j + i]) : 0;
    }
    for (int64_t i = 0; (x->add || residual != NULL) && i < n; i++) {
        sum[i] += FN(get_out)(x, x->add ? x->c : residual, at + i);
    }
}

static void FN(end_row)(const struct job *x, real *sum, int64_t at, int64_t n)
{
    real gelu_at[TILE_COLS];

    if (x->tail.pre_gelu != NULL) {
        FN(put_row)(x, x->tail.pre_gelu, at, sum, n);
        (void)gelu_forward_cpu(NULL, DT_REAL, sum, sum, n);
    }
    if (x->tail.gelu_at != NULL) {
        for (int64_t i = 0; i < n; i++) {
            gelu_at[i] = FN(get_out)(x, x->tail.gelu_at, at + i);
        }
        (void)gelu_backward_cpu(NULL, DT_REAL, sum, sum, gelu_at, n);
    }
}

static void FN(gemm)(const struct job *x, const struct tile *t, const real *a, int64_t a_step,
                     const real *b, int64_t b_step, int64_t k, real *sum, int64_t step, bool add)
{
    GEMM(CblasRowMajor, x->ta ? CblasTrans : CblasNoTrans, x->tb ? CblasTrans : CblasNoTrans,
         (int)t->rows, (int)t->cols, (int)k, (real)x->sign, a, (int)a_step, b, (int)b_step,
         add ? 1 : 0, sum, (int)step);
}

#    if NARROW
/* A block of a matrix, `step` from row to row there, dense here. */
static void FN(widen)(real *to, const elem *from, int64_t rows, int64_t cols, int64_t step)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c++) {
            to[r * cols + c] = GET(from[r * step + c]);
        }
    }
}
#    endif

/* `room` holds the operands' copies, behind the sums. */
static void FN(multiply)(const struct job *x, const struct tile *t, real *sum, int64_t step,
                         bool add, real *room)
{
    const elem *a = (const elem *)x->a + (x->ta ? t->i : t->i * x->k);
    const elem *b = (const elem *)x->b + (x->tb ? t->j * x->k : t->j);
#    if NARROW
    real *wide_a = room + TILE_ROWS * TILE_COLS, *wide_b = wide_a + TILE_ROWS * TILE_K;

    for (int64_t p = 0; p < x->k; p += TILE_K) {
        int64_t k = tile_min(TILE_K, x->k - p);

        if (x->ta) {
            FN(widen)(wide_a, a + p * x->m, k, t->rows, x->m);
        } else {
            FN(widen)(wide_a, a + p, t->rows, k, x->k);
        }
        if (x->tb) {
            FN(widen)(wide_b, b + p, t->cols, k, x->k);
        } else {
            FN(widen)(wide_b, b + p * x->n, k, t->cols, x->n);
        }
        FN(gemm)
        (x, t, wide_a, x->ta ? t->rows : k, wide_b, x->tb ? k : t->cols, k, sum, step,
         add || p > 0);
    }
#    else
    (void)room;
    FN(gemm)(x, t, a, x->ta ? x->m : x->k, b, x->tb ? x->k : x->n, x->k, sum, step, add);
#    endif
}

/* Without room the sums are made where they stay, in c. */
static void FN(tile)(const struct job *x, const struct tile *t, real *room)
{
    real *sum = room != NULL ? room : (real *)x->c + t->i * x->n + t->j;
    int64_t step = room != NULL ? t->cols : x->n;
    bool begun = room != NULL || x->tail.bias != NULL || x->tail.residual != NULL;

    for (int64_t r = 0; begun && r < t->rows; r++) {
        FN(begin_row)(x, sum + r * step, (t->i + r) * x->n + t->j, t->j, t->cols);
    }
    FN(multiply)(x, t, sum, step, begun || x->add, room);
    for (int64_t r = 0; r < t->rows; r++) {
        FN(end_row)(x, sum + r * step, (t->i + r) * x->n + t->j, t->cols);
        if (room != NULL) {
            FN(put_row)(x, x->c, (t->i + r) * x->n + t->j, sum + r * step, t->cols);
        }
    }
}

static void FN(matmul)(const struct job *x)
{
    const size_t room_size =
        TILE_ROWS * TILE_COLS + (NARROW ? TILE_ROWS * TILE_K + TILE_K * TILE_COLS : 0);
    const bool in_c = !NARROW && x->tail.pre_gelu == NULL;

#    pragma omp parallel if (x->m * x->n * x->k > MULTIPLIES * PARALLEL_FROM)
    {
        real *room = in_c ? NULL : mem_array(room_size, sizeof *room);

#    pragma omp for collapse(2) schedule(dynamic)
        for (int64_t i = 0; i < x->m; i += TILE_ROWS) {
            for (int64_t j = 0; j < x->n; j += TILE_COLS) {
                const struct tile t = {i, j, tile_min(TILE_ROWS, x->m - i),
                                       tile_min(TILE_COLS, x->n - j)};

                FN(tile)(x, &t, room);
            }
        }
        free(room);
    }
}

#endif
