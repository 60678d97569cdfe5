/* The 16-bit types: every operation beside itself in double, from the same inputs. What comes out
 * may differ by one rounding of its type, and by the f32 that is computed with inside. */
#include "kernels/ops.h"

#include "tests/unit/kernels/finite.h"

static const enum dtype narrow[] = {DT_BF16, DT_F16};

struct both {
    enum dtype dt;
    int64_t n;
    void *x;     /* of that type */
    double *ref; /* the same values */
};

/* The reference forgets its own result and goes on from the narrow one. */
static void sync(struct both *b)
{
    assert_int_equal(convert_cpu(NULL, DT_F64, b->ref, b->dt, b->x, b->n), 0);
}

static struct both make(enum dtype dt, int64_t n, double size)
{
    struct both b = {
        .dt = dt, .n = n, .x = mem_array((size_t)n + 1, dtype_bytes(dt)), .ref = finite_array(n)};

    for (int64_t i = 0; i < n; i++) {
        b.ref[i] *= size;
    }
    assert_int_equal(convert_cpu(NULL, dt, b.x, DT_F64, b.ref, n), 0);
    sync(&b);
    return b;
}

static void drop(struct both *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(b[i].x);
        free(b[i].ref);
    }
}

static double precision(enum dtype dt)
{
    return dt == DT_BF16 ? 0x1p-8 : dt == DT_F16 ? 0x1p-11 : 0x1p-17;
}

static void near(const char *what, const struct both *b)
{
    double *got = finite_zeros(b->n);

    assert_int_equal(convert_cpu(NULL, DT_F64, got, b->dt, b->x, b->n), 0);
    for (int64_t i = 0; i < b->n; i++) {
        if (!(fabs(got[i] - b->ref[i]) <= precision(b->dt) * fabs(b->ref[i]) + 2e-5)) {
            fail_msg("dtype %d: %s[%lld] is %.9g, not %.9g", (int)b->dt, what, (long long)i, got[i],
                     b->ref[i]);
        }
    }
    free(got);
}

/* BOTH(add, DT, (y, a, b, n)): the operation in the narrow type on .x, in double on .ref. */
#define BOTH(name, narrow_args, wide_args)                                                         \
    assert_int_equal(name##_cpu narrow_args, 0);                                                   \
    assert_int_equal(name##_cpu wide_args, 0)

static void elementwise(enum dtype dt, int64_t n)
{
    struct both p[] = {make(dt, n, 3), make(dt, n, 3), make(dt, n, 1), make(dt, 2 * n, 3),
                       make(dt, 2 * n, 1)};

    BOTH(add, (NULL, dt, p[2].x, p[0].x, p[1].x, n),
         (NULL, DT_F64, p[2].ref, p[0].ref, p[1].ref, n));
    near("add", &p[2]);
    BOTH(gelu_forward, (NULL, dt, p[2].x, p[0].x, n), (NULL, DT_F64, p[2].ref, p[0].ref, n));
    near("gelu", &p[2]);
    BOTH(gelu_backward, (NULL, dt, p[2].x, p[1].x, p[0].x, n),
         (NULL, DT_F64, p[2].ref, p[1].ref, p[0].ref, n));
    near("gelu's dx", &p[2]);
    BOTH(swiglu_forward, (NULL, dt, p[2].x, p[3].x, 1, n),
         (NULL, DT_F64, p[2].ref, p[3].ref, 1, n));
    near("swiglu", &p[2]);
    BOTH(swiglu_backward, (NULL, dt, p[4].x, p[1].x, p[3].x, 1, n),
         (NULL, DT_F64, p[4].ref, p[1].ref, p[3].ref, 1, n));
    near("swiglu's dx", &p[4]);
    drop(p, ARRAY_LEN(p));
}

static void norms(enum dtype dt, int64_t rows, int64_t cols)
{
    int64_t n = rows * cols;
    enum dtype accum = dtype_accum(dt);
    struct both p[] = {make(dt, n, 1),       make(dt, n, 2),       make(dt, cols, 1),
                       make(dt, cols, 1),    make(dt, n, 1),       make(dt, n, 1),
                       make(accum, rows, 1), make(accum, rows, 1), make(accum, cols, 1),
                       make(accum, cols, 1)};
    enum { Y, X, G, B, DY, DX, MEAN, RSTD, DG, DB };

    BOTH(layernorm_forward,
         (NULL, dt, p[Y].x, p[MEAN].x, p[RSTD].x, p[X].x, p[G].x, p[B].x, rows, cols, 1e-2),
         (NULL, DT_F64, p[Y].ref, p[MEAN].ref, p[RSTD].ref, p[X].ref, p[G].ref, p[B].ref, rows,
          cols, 1e-2));
    BOTH(layernorm_backward,
         (NULL, dt, p[DX].x, p[DG].x, p[DB].x, NULL, p[DY].x, p[X].x, p[G].x, p[MEAN].x, p[RSTD].x,
          rows, cols),
         (NULL, DT_F64, p[DX].ref, p[DG].ref, p[DB].ref, NULL, p[DY].ref, p[X].ref, p[G].ref,
          p[MEAN].ref, p[RSTD].ref, rows, cols));
    near("layernorm", &p[Y]);
    near("mean", &p[MEAN]);
    near("rstd", &p[RSTD]);
    near("layernorm's dx", &p[DX]);
    near("dg", &p[DG]);
    near("db", &p[DB]);
    sync(&p[DX]);
    BOTH(rmsnorm_forward, (NULL, dt, p[Y].x, p[RSTD].x, p[X].x, p[G].x, rows, cols, 1e-2),
         (NULL, DT_F64, p[Y].ref, p[RSTD].ref, p[X].ref, p[G].ref, rows, cols, 1e-2));
    BOTH(rmsnorm_backward,
         (NULL, dt, p[DX].x, p[DG].x, NULL, p[DY].x, p[X].x, p[G].x, p[RSTD].x, rows, cols),
         (NULL, DT_F64, p[DX].ref, p[DG].ref, NULL, p[DY].ref, p[X].ref, p[G].ref, p[RSTD].ref,
          rows, cols));
    near("rmsnorm", &p[Y]);
    near("rstd", &p[RSTD]);
    near("rmsnorm's dx", &p[DX]);
    near("dg", &p[DG]);
    BOTH(bias_backward, (NULL, dt, p[DB].x, p[DY].x, rows, cols),
         (NULL, DT_F64, p[DB].ref, p[DY].ref, rows, cols));
    near("db", &p[DB]);
    drop(p, ARRAY_LEN(p));
}

static void attention(enum dtype dt, struct attention_shape s)
{
    int64_t n = s.batch * s.seq * (s.heads + 2 * s.kv_heads) * s.head_dim;
    int64_t o = s.batch * s.seq * s.heads * s.head_dim, angles = s.seq * s.head_dim / 2;
    enum dtype accum = dtype_accum(dt);
    struct both p[] = {
        make(dt, n, 2),        make(dt, o, 1), make(accum, s.batch * s.heads * s.seq, 1),
        make(dt, o, 1),        make(dt, n, 1), make(accum, angles, 1),
        make(accum, angles, 1)};
    enum { QKV, OUT, LSE, DOUT, DQKV, COS, SIN };

    BOTH(rope_forward, (NULL, dt, p[QKV].x, p[COS].x, p[SIN].x, &s),
         (NULL, DT_F64, p[QKV].ref, p[COS].ref, p[SIN].ref, &s));
    near("rope", &p[QKV]);
    sync(&p[QKV]);
    BOTH(attention_forward, (NULL, dt, p[OUT].x, p[LSE].x, p[QKV].x, &s, NULL),
         (NULL, DT_F64, p[OUT].ref, p[LSE].ref, p[QKV].ref, &s, NULL));
    near("attention", &p[OUT]);
    near("lse", &p[LSE]);
    sync(&p[OUT]);
    BOTH(attention_backward,
         (NULL, dt, p[DQKV].x, p[DOUT].x, p[QKV].x, p[OUT].x, p[LSE].x, &s, NULL),
         (NULL, DT_F64, p[DQKV].ref, p[DOUT].ref, p[QKV].ref, p[OUT].ref, p[LSE].ref, &s, NULL));
    near("attention's dqkv", &p[DQKV]);
    sync(&p[DQKV]);
    BOTH(rope_backward, (NULL, dt, p[DQKV].x, p[COS].x, p[SIN].x, &s),
         (NULL, DT_F64, p[DQKV].ref, p[COS].ref, p[SIN].ref, &s));
    near("rope's dqkv", &p[DQKV]);
    drop(p, ARRAY_LEN(p));
}

static void crossentropy(enum dtype dt, int64_t rows, int64_t vocab, int64_t stride)
{
    int32_t *target = mem_array((size_t)rows + 1, sizeof *target);
    struct both p[] = {make(dt, rows * stride, 6), make(dtype_accum(dt), rows, 1)};

    for (int64_t r = 0; r < rows; r++) {
        target[r] = (int32_t)(r % (vocab + 1)) - 1;
    }
    BOTH(crossentropy, (NULL, dt, p[1].x, p[0].x, p[0].x, target, rows, vocab, stride, 0.5),
         (NULL, DT_F64, p[1].ref, p[0].ref, p[0].ref, target, rows, vocab, stride, 0.5));
    near("loss", &p[1]);
    near("dlogits", &p[0]);
    drop(p, ARRAY_LEN(p));
    free(target);
}

static void embedding(enum dtype dt)
{
    enum { ROWS = 12, SEQ = 6, COLS = 7, VOCAB = 5 };
    static const int32_t token[ROWS] = {0, 4, 4, 1, 0, 0, 4, 1, 1, 2, 2, 0};
    struct both p[] = {make(dt, VOCAB * COLS, 1), make(dt, SEQ * COLS, 1), make(dt, ROWS * COLS, 1),
                       make(dtype_accum(dt), VOCAB * COLS, 1),
                       make(dtype_accum(dt), SEQ * COLS, 1)};

    for (int positions = 0; positions < 2; positions++) {
        BOTH(embedding_forward,
             (NULL, dt, p[2].x, token, p[0].x, positions ? p[1].x : NULL, ROWS, SEQ, COLS),
             (NULL, DT_F64, p[2].ref, token, p[0].ref, positions ? p[1].ref : NULL, ROWS, SEQ,
              COLS));
        near("embedding", &p[2]);
        BOTH(embedding_backward,
             (NULL, dt, p[3].x, positions ? p[4].x : NULL, p[2].x, token, ROWS, SEQ, COLS, VOCAB),
             (NULL, DT_F64, p[3].ref, positions ? p[4].ref : NULL, p[2].ref, token, ROWS, SEQ, COLS,
              VOCAB));
        sync(&p[2]);
    }
    drop(p, 3);
    drop(p + 3, 2);
}

/* Every way of storing the operands, both types of output; every tail where c is not added to. */
static void matmul(enum dtype dt, enum dtype out, int64_t m, int64_t n, int64_t k)
{
    enum { C, A, B, BIAS, RESIDUAL, PRE, AT };

    for (unsigned way = 0; way < 32; way++) {
        unsigned flags = way % 8, gelu = way / 8 % 3;
        bool add = (flags & MATMUL_ADD) != 0;
        struct both p[] = {make(out, m * n, 1), make(dt, m * k, 1),  make(dt, k * n, 1),
                           make(dt, n, 1),      make(out, m * n, 1), make(out, m * n, 1),
                           make(out, m * n, 3)};
        struct matmul_tail x = {p[BIAS].x, way >= 16 ? p[RESIDUAL].x : NULL,
                                gelu == 1 ? p[PRE].x : NULL, gelu == 2 ? p[AT].x : NULL};
        struct matmul_tail ref = {p[BIAS].ref, way >= 16 ? p[RESIDUAL].ref : NULL,
                                  gelu == 1 ? p[PRE].ref : NULL, gelu == 2 ? p[AT].ref : NULL};

        BOTH(matmul, (NULL, dt, out, p[C].x, p[A].x, p[B].x, m, n, k, flags, add ? NULL : &x),
             (NULL, DT_F64, DT_F64, p[C].ref, p[A].ref, p[B].ref, m, n, k, flags,
              add ? NULL : &ref));
        near("matmul", &p[C]);
        near("pre_gelu", &p[PRE]);
        drop(p, ARRAY_LEN(p));
    }
}

static void sums(enum dtype dt, int64_t n)
{
    struct both p = make(dt, n, 1);
    double sum[2] = {0}, sumsq[2] = {0};

    BOTH(sum_add, (NULL, dt, &sum[0], p.x, n), (NULL, DT_F64, &sum[1], p.ref, n));
    BOTH(sumsq_add, (NULL, dt, &sumsq[0], p.x, n), (NULL, DT_F64, &sumsq[1], p.ref, n));
    assert_true(sum[0] == sum[1] && sumsq[0] == sumsq[1]); /* in double on both sides */
    drop(&p, 1);
}

static void test_elementwise(void **state)
{
    (void)state;
    for (size_t t = 0; t < ARRAY_LEN(narrow); t++) {
        elementwise(narrow[t], 0);
        elementwise(narrow[t], 1);
        elementwise(narrow[t], 4099);
        sums(narrow[t], 4099);
    }
}

static void test_norms(void **state)
{
    (void)state;
    for (size_t t = 0; t < ARRAY_LEN(narrow); t++) {
        norms(narrow[t], 1, 5);
        norms(narrow[t], 7, 33);
        norms(narrow[t], 3, 64);
        norms(narrow[t], 0, 8);
    }
}

static void test_attention(void **state)
{
    (void)state;
    for (size_t t = 0; t < ARRAY_LEN(narrow); t++) {
        attention(narrow[t], (struct attention_shape){1, 1, 1, 1, 2, 0});
        attention(narrow[t], (struct attention_shape){2, 70, 3, 3, 6, 0});
        attention(narrow[t], (struct attention_shape){1, 9, 4, 2, 8, 0});
        attention(narrow[t], (struct attention_shape){0, 9, 4, 2, 8, 0});
    }
}

static void test_head_and_embedding(void **state)
{
    (void)state;
    for (size_t t = 0; t < ARRAY_LEN(narrow); t++) {
        crossentropy(narrow[t], 13, 11, 16);
        crossentropy(narrow[t], 1, 1000, 1003);
        crossentropy(narrow[t], 0, 11, 16);
        embedding(narrow[t]);
    }
}

static void test_matmul(void **state)
{
    static const int64_t shape[][3] = {{1, 1, 1},     {5, 7, 3},     {1, 65, 9},
                                       {33, 17, 270}, {260, 515, 4}, {0, 3, 3}};

    (void)state;
    for (size_t t = 0; t < ARRAY_LEN(narrow); t++) {
        for (size_t s = 0; s < ARRAY_LEN(shape); s++) {
            matmul(narrow[t], narrow[t], shape[s][0], shape[s][1], shape[s][2]);
            matmul(narrow[t], DT_F32, shape[s][0], shape[s][1], shape[s][2]);
        }
        assert_true(matmul_cpu(NULL, narrow[t], DT_F64, NULL, NULL, NULL, 0, 0, 0, 0, NULL) != 0);
        assert_true(matmul_cpu(NULL, DT_F32, narrow[t], NULL, NULL, NULL, 0, 0, 0, 0, NULL) != 0);
    }
}

/* The masters move as in double; the working copy is what convert_stochastic() makes of them. */
static void test_adamw(void **state)
{
    enum { N = 1001 };
    const struct adamw_step how = {1e-2, 0.9, 0.95, 1e-8,
                                   0.1,  0.5, 0.3,  {.seed = 11, .step = 4, .first = 6}};
    double scale = 0.5;

    (void)state;
    for (size_t t = 0; t < ARRAY_LEN(narrow); t++) {
        struct both p[] = {make(narrow[t], N, 1), make(DT_F32, N, 1), make(DT_F32, N, 1),
                           make(DT_F32, N, 0), make(DT_F32, N, 1)};
        uint16_t want[N];

        BOTH(adamw, (NULL, narrow[t], p[0].x, p[1].x, p[2].x, p[3].x, p[4].x, N, &scale, &how),
             (NULL, DT_F64, p[0].ref, p[1].ref, p[2].ref, p[3].ref, p[4].ref, N, &scale, &how));
        near("master", &p[1]);
        near("m", &p[2]);
        near("v", &p[3]);
        assert_int_equal(convert_stochastic_cpu(NULL, narrow[t], want, p[1].x, N, &how.noise), 0);
        assert_memory_equal(want, p[0].x, sizeof want);
        drop(p, ARRAY_LEN(p));
    }
}

/* Without masters an update far below the parameter's precision still counts, now and then. */
static void test_adamw_without_masters(void **state)
{
    enum { N = 4096 };
    static float m[N], v[N], grad[N], mean;
    static uint16_t p[N];
    struct adamw_step how = {.lr = 0x1p-11, .eps = 1e-8, .correct1 = 1, .correct2 = 1};
    double scale = 1;

    (void)state;
    for (int i = 0; i < N; i++) {
        p[i] = bf16_round(1);
        grad[i] = 1;
    }
    assert_int_equal(adamw_cpu(NULL, DT_BF16, p, NULL, m, v, grad, N, &scale, &how), 0);
    for (int i = 0; i < N; i++) {
        mean += bf16_widen(p[i]) / N;
    }
    assert_float_equal(mean, 1 - 0x1p-11f, 0x1p-13f);
}

int main(void)
{
    struct kstream *ks;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elementwise),
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_head_and_embedding),
        cmocka_unit_test(test_matmul),
        cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_adamw_without_masters),
    };
    int failed;

    assert_int_equal(stream_open_cpu(&ks),
                     0); /* OpenBLAS's own threads cost more here than they bring */
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    stream_close_cpu(&ks);
    return failed;
}
