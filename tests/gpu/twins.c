#include "tests/gpu/twins.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"

static double uniform(struct twins *c)
{
    c->seed = c->seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(c->seed >> 11) / (double)(UINT64_C(1) << 52) - 1.0;
}

static int64_t between(struct twins *c, int64_t low, int64_t high)
{
    return low + (int64_t)((uniform(c) + 1) / 2 * (double)(high - low + 1));
}

/* An extent that only costs time: where its size decides nothing. */
static int64_t up_to(struct twins *c, int64_t high)
{
    return between(c, 1, c->shrink > 1 ? high / c->shrink : high);
}

/* A width: in half of the cases one whose rows are whole 16-byte pieces in every type. */
static int64_t columns(struct twins *c, int64_t low, int64_t high)
{
    int64_t n = between(c, low, high);

    return between(c, 0, 1) == 0 ? n : (n + 7) / 8 * 8;
}

/* One tensor on both sides: on the device of the type that is looked at (or of its sums), here f64
 * of the same values. */
struct pair {
    void *device;
    double *host;
    int64_t n;
    enum dtype dt;
};

void twins_trouble(struct twins *c, int rc, const char *what)
{
    if (rc != 0 && c->trouble == NULL) {
        c->trouble = what;
        c->trouble_rc = rc;
    }
}

void twins_shape(struct twins *c, const char *fmt, ...)
{
    va_list ap;

    if (c->trouble == NULL) {
        va_start(ap, fmt);
        vsnprintf(c->shape, sizeof c->shape, fmt, ap);
        va_end(ap);
    }
}

void twins_worse(struct twins *c, double off)
{
    if (!(off <= c->worst) && !isnan(c->worst)) { /* a NaN stays */
        c->worst = off;
    }
}

static struct pair make_as(struct twins *c, enum dtype dt, int64_t n, double size)
{
    struct pair p = {.n = n, .host = mem_array((size_t)n + 1, sizeof *p.host), .dt = dt};
    void *there = mem_new((size_t)(n + 1) * sizeof *p.host);

    for (int64_t i = 0; i < n; i++) {
        p.host[i] = size * uniform(c);
    }
    twins_trouble(c, kops_cpu()->convert(NULL, dt, there, DT_F64, p.host, n), "convert");
    twins_trouble(c, kops_cpu()->convert(NULL, DT_F64, p.host, dt, there, n), "convert");
    twins_trouble(c, c->k->mem_alloc(&p.device, (size_t)n * dtype_bytes(dt)), "mem_alloc");
    twins_trouble(c, c->k->mem_put(c->ks, p.device, there, (size_t)n * dtype_bytes(dt)), "mem_put");
    free(there);
    return p;
}

static struct pair make(struct twins *c, int64_t n, double size)
{
    return make_as(c, c->dt, n, size);
}

/* What is summed up, or a statistic. */
static struct pair make_sum(struct twins *c, int64_t n, double size)
{
    return make_as(c, dtype_accum(c->dt), n, size);
}

/* The element that is farthest off, a NaN before all, and how many are none too good. */
static void tell(struct twins *c, const char *name, const struct pair *p, const double *got)
{
    double most = -1, size = 0;
    int64_t at = 0, nans = 0;

    for (int64_t i = 0; i < p->n; i++) {
        double off = fabs(got[i] - p->host[i]);

        size = fmax(size, fabs(p->host[i]));
        nans += isnan(got[i]);
        if (!(off <= most) && !isnan(most)) {
            most = off;
            at = i;
        }
    }
    snprintf(c->told, sizeof c->told,
             "%s[%lld] of %lld elements, %s: got %.6g, wanted %.6g (the largest is %.3g, %lld NaN)",
             name, (long long)at, (long long)p->n, c->shape, got[at], p->host[at], size,
             (long long)nans);
}

#define compare(c, pair) compare_as(c, pair, &#pair[1])

static void compare_as(struct twins *c, const struct pair *p, const char *name)
{
    void *there = mem_new((size_t)(p->n + 1) * sizeof(double));
    double *got = mem_array((size_t)p->n + 1, sizeof *got), diff = 0, ref = 0;
    size_t size_bytes = (size_t)p->n * dtype_bytes(p->dt);

    twins_trouble(c, c->k->mem_get(c->ks, there, p->device, size_bytes), "mem_get");
    twins_trouble(c, kops_cpu()->convert(NULL, DT_F64, got, p->dt, there, p->n), "convert");
    for (int64_t i = 0; i < p->n; i++) {
        diff += (got[i] - p->host[i]) * (got[i] - p->host[i]);
        ref += p->host[i] * p->host[i];
    }
    diff = ref > 0 ? sqrt(diff / ref) : sqrt(diff);
    /* Sums must be as good as their own type is, not as the row's. */
    diff *= twins_bound(c->dt) / twins_bound(p->dt);
    if (!(diff <= twins_bound(c->dt)) && c->told[0] == '\0' && c->trouble == NULL) {
        tell(c, name, p, got);
    }
    twins_worse(c, diff);
    free(there);
    free(got);
}

/* What the device holds. */
static void *fetch(struct twins *c, const struct pair *p)
{
    size_t size_bytes = (size_t)p->n * dtype_bytes(p->dt);
    void *copy = mem_new(size_bytes + 1);

    twins_trouble(c, c->k->mem_get(c->ks, copy, p->device, size_bytes), "mem_get");
    return copy;
}

/* To be compared with the columns' sums of what the device stored: it rounds before it sums. */
static void add_stored(struct twins *c, const struct pair *sum, const struct pair *x, int64_t rows,
                       int64_t cols)
{
    void *there = fetch(c, x);
    double *wide = mem_array((size_t)x->n, sizeof *wide);

    twins_trouble(c, kops_cpu()->convert(NULL, DT_F64, wide, x->dt, there, x->n), "convert");
    twins_trouble(c, kops_cpu()->bias_backward(NULL, DT_F64, sum->host, wide, rows, cols),
                  "the CPU's bias_backward");
    free(there);
    free(wide);
}

static void drop(struct twins *c, struct pair *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        c->k->mem_free(p[i].device);
        free(p[i].host);
    }
}

static int32_t *put_tokens(struct twins *c, int32_t *host, int64_t n)
{
    void *device = NULL;

    twins_trouble(c, c->k->mem_alloc(&device, (size_t)n * sizeof *host), "mem_alloc");
    twins_trouble(c, c->k->mem_put(c->ks, device, host, (size_t)n * sizeof *host), "mem_put");
    return device;
}

/* Runs an operation on both sides: DO(name, (cuda's arguments), (cpu's arguments)). */
#define DO(name, device_args, host_args)                                                           \
    do {                                                                                           \
        twins_trouble(c, c->k->name device_args, #name);                                           \
        twins_trouble(c, kops_cpu()->name host_args, "the CPU's " #name);                          \
    } while (0)

static void rows_and_cols(struct twins *c, int64_t rows, int64_t cols)
{
    twins_shape(c, "%lld x %lld", (long long)rows, (long long)cols);
}

static void heads_and_tokens(struct twins *c, const struct attention_shape *s)
{
    twins_shape(c, "batch %lld, seq %lld, heads %lld/%lld of %lld, %s order", (long long)s->batch,
                (long long)s->seq, (long long)s->heads, (long long)s->kv_heads,
                (long long)s->head_dim, s->any_order ? "any" : "fixed");
}

/* Now and then as wide as a row may be on CUDA, or more rows than there are blocks for at a
 * time. */
static void norm_shape(struct twins *c, int64_t *rows, int64_t *cols)
{
    int64_t kind = between(c, 0, 5);

    *rows = kind == 0 ? between(c, 1, 5) : kind == 1 ? between(c, 2200, 3000) : between(c, 1, 300);
    *cols = kind == 0 ? columns(c, 4000, 8192) : columns(c, 1, kind == 1 ? 300 : 1100);
}

static void check_layernorm(struct twins *c)
{
    int64_t rows, cols;

    norm_shape(c, &rows, &cols);
    rows_and_cols(c, rows, cols);
    struct pair p[] = {make(c, rows * cols, 1), make_sum(c, rows, 0),    make_sum(c, rows, 0),
                       make(c, rows * cols, 3), make(c, cols, 1),        make(c, cols, 1),
                       make(c, rows * cols, 1), make(c, rows * cols, 1), make_sum(c, cols, 1),
                       make_sum(c, cols, 1),    make_sum(c, cols, 1)};
    enum { Y, MEAN, RSTD, X, G, B, DY, DX, DG, DB, DSUM };
    bool summed = between(c, 0, 1) == 1;

    DO(layernorm_forward,
       (c->ks, c->dt, p[Y].device, p[MEAN].device, p[RSTD].device, p[X].device, p[G].device,
        p[B].device, rows, cols, 1e-5),
       (NULL, DT_F64, p[Y].host, p[MEAN].host, p[RSTD].host, p[X].host, p[G].host, p[B].host, rows,
        cols, 1e-5));
    DO(layernorm_backward,
       (c->ks, c->dt, p[DX].device, p[DG].device, p[DB].device, summed ? p[DSUM].device : NULL,
        p[DY].device, p[X].device, p[G].device, p[MEAN].device, p[RSTD].device, rows, cols),
       (NULL, DT_F64, p[DX].host, p[DG].host, p[DB].host, NULL, p[DY].host, p[X].host, p[G].host,
        p[MEAN].host, p[RSTD].host, rows, cols));
    if (summed) {
        add_stored(c, &p[DSUM], &p[DX], rows, cols);
    }
    compare(c, &p[DSUM]);
    if (cols > 1) { /* of a single column the mean is all there is: y is rounding alone */
        compare(c, &p[Y]);
        compare(c, &p[DX]);
        compare(c, &p[DG]);
    }
    compare(c, &p[DB]);
    drop(c, p, ARRAY_LEN(p));
}

static void check_rmsnorm(struct twins *c)
{
    int64_t rows, cols;

    norm_shape(c, &rows, &cols);
    rows_and_cols(c, rows, cols);
    struct pair p[] = {make(c, rows * cols, 1), make_sum(c, rows, 0),    make(c, rows * cols, 3),
                       make(c, cols, 1),        make(c, rows * cols, 1), make(c, rows * cols, 1),
                       make_sum(c, cols, 1),    make_sum(c, cols, 1)};
    enum { Y, RSTD, X, G, DY, DX, DG, DSUM };
    bool summed = between(c, 0, 1) == 1;

    DO(rmsnorm_forward,
       (c->ks, c->dt, p[Y].device, p[RSTD].device, p[X].device, p[G].device, rows, cols, 1e-5),
       (NULL, DT_F64, p[Y].host, p[RSTD].host, p[X].host, p[G].host, rows, cols, 1e-5));
    DO(rmsnorm_backward,
       (c->ks, c->dt, p[DX].device, p[DG].device, summed ? p[DSUM].device : NULL, p[DY].device,
        p[X].device, p[G].device, p[RSTD].device, rows, cols),
       (NULL, DT_F64, p[DX].host, p[DG].host, NULL, p[DY].host, p[X].host, p[G].host, p[RSTD].host,
        rows, cols));
    if (summed) {
        add_stored(c, &p[DSUM], &p[DX], rows, cols);
    }
    compare(c, &p[Y]);
    compare(c, &p[RSTD]);
    compare(c, &p[DX]);
    compare(c, &p[DG]);
    compare(c, &p[DSUM]);
    drop(c, p, ARRAY_LEN(p));
}

static void check_rope(struct twins *c)
{
    int64_t kv = between(c, 1, 3);
    struct attention_shape s = {between(c, 1, 3),      between(c, 1, 100),
                                kv * between(c, 1, 3), kv,
                                columns(c, 1, 80) * 2, false};
    int64_t n = s.batch * s.seq * (s.heads + 2 * s.kv_heads) * s.head_dim;
    int64_t angles = s.seq * s.head_dim / 2;

    heads_and_tokens(c, &s);
    struct pair p[] = {make(c, n, 1), make(c, n, 1), make_sum(c, angles, 1),
                       make_sum(c, angles, 1)};

    DO(rope_forward, (c->ks, c->dt, p[0].device, p[2].device, p[3].device, &s),
       (NULL, DT_F64, p[0].host, p[2].host, p[3].host, &s));
    DO(rope_backward, (c->ks, c->dt, p[1].device, p[2].device, p[3].device, &s),
       (NULL, DT_F64, p[1].host, p[2].host, p[3].host, &s));
    compare(c, &p[0]);
    compare(c, &p[1]);
    drop(c, p, ARRAY_LEN(p));
}

static void check_swiglu(struct twins *c)
{
    int64_t rows = between(c, 1, 300), cols = columns(c, 1, 700), n = rows * cols;

    rows_and_cols(c, rows, cols);
    struct pair p[] = {make(c, 2 * n, 4), make(c, n, 0), make(c, n, 1), make(c, 2 * n, 0)};

    DO(swiglu_forward, (c->ks, c->dt, p[1].device, p[0].device, rows, cols),
       (NULL, DT_F64, p[1].host, p[0].host, rows, cols));
    DO(swiglu_backward, (c->ks, c->dt, p[3].device, p[2].device, p[0].device, rows, cols),
       (NULL, DT_F64, p[3].host, p[2].host, p[0].host, rows, cols));
    compare(c, &p[1]);
    compare(c, &p[3]);
    drop(c, p, ARRAY_LEN(p));
}

static void check_gelu(struct twins *c)
{
    int64_t n = columns(c, 1, up_to(c, 100000));

    twins_shape(c, "%lld", (long long)n);
    struct pair p[] = {make(c, n, 4), make(c, n, 0), make(c, n, 1), make(c, n, 0)};

    DO(gelu_forward, (c->ks, c->dt, p[1].device, p[0].device, n),
       (NULL, DT_F64, p[1].host, p[0].host, n));
    DO(gelu_backward, (c->ks, c->dt, p[3].device, p[2].device, p[0].device, n),
       (NULL, DT_F64, p[3].host, p[2].host, p[0].host, n));
    compare(c, &p[1]);
    compare(c, &p[3]);
    drop(c, p, ARRAY_LEN(p));
}

static void check_add(struct twins *c)
{
    int64_t n = columns(c, 1, up_to(c, 100000));

    twins_shape(c, "%lld", (long long)n);
    struct pair p[] = {make(c, n, 1), make(c, n, 1), make(c, n, 0)};

    DO(add, (c->ks, c->dt, p[2].device, p[0].device, p[1].device, n),
       (NULL, DT_F64, p[2].host, p[0].host, p[1].host, n));
    compare(c, &p[2]);
    drop(c, p, ARRAY_LEN(p));
}

static void check_bias(struct twins *c)
{
    int64_t rows = between(c, 1, 3000), cols = columns(c, 1, 700);

    rows_and_cols(c, rows, cols);
    struct pair p[] = {make_sum(c, cols, 1), make(c, rows * cols, 1)};

    DO(bias_backward, (c->ks, c->dt, p[0].device, p[1].device, rows, cols),
       (NULL, DT_F64, p[0].host, p[1].host, rows, cols));
    compare(c, &p[0]);
    drop(c, p, ARRAY_LEN(p));
}

/* Every way of storing the operands; where nothing is added to also every tail. */
static void check_matmul(struct twins *c)
{
    enum { C, A, B_, BIAS, RESIDUAL, PRE, AT };

    for (unsigned turn = 0; turn < 12; turn++) {
        unsigned flags = turn < 8 ? turn : turn - 8 + MATMUL_SUB;
        int64_t m = up_to(c, 300), n = up_to(c, 300), k = up_to(c, 300);
        bool add = (flags & (MATMUL_ADD | MATMUL_SUB)) != 0;
        enum dtype out = add || (flags + (unsigned)c->round) % 3 == 0 ? dtype_accum(c->dt) : c->dt;
        struct pair p[] = {make_as(c, out, m * n, 1), make(c, m * k, 1),
                           make(c, k * n, 1),         make(c, n, 1),
                           make_as(c, out, m * n, 1), make_as(c, out, m * n, 1),
                           make_as(c, out, m * n, 1)};
        int64_t bias = between(c, 0, 1), residual = between(c, 0, 1), gelu = between(c, 0, 2);

        twins_shape(c, "%lld x %lld x %lld, flags %u, out %s%s%s%s", (long long)m, (long long)n,
                    (long long)k, flags, out == c->dt ? "the same" : "f32",
                    !add && bias ? ", bias" : "", !add && residual ? ", residual" : "",
                    add || gelu == 0 ? ""
                    : gelu == 1      ? ", gelu"
                                     : ", gelu's slope");
        struct matmul_tail device = {
            bias ? p[BIAS].device : NULL, residual ? p[RESIDUAL].device : NULL,
            gelu == 1 ? p[PRE].device : NULL, gelu == 2 ? p[AT].device : NULL};
        struct matmul_tail host = {bias ? p[BIAS].host : NULL, residual ? p[RESIDUAL].host : NULL,
                                   gelu == 1 ? p[PRE].host : NULL, gelu == 2 ? p[AT].host : NULL};

        DO(matmul,
           (c->ks, c->dt, out, p[C].device, p[A].device, p[B_].device, m, n, k, flags,
            add ? NULL : &device),
           (NULL, DT_F64, DT_F64, p[C].host, p[A].host, p[B_].host, m, n, k, flags,
            add ? NULL : &host));
        compare(c, &p[C]);
        compare(c, &p[PRE]);
        drop(c, p, ARRAY_LEN(p));
    }
}

/* Both passes; `scratch` is for that. */
static void run_attention(struct twins *c, const struct attention_shape *s, void *scratch)
{
    int64_t n = s->batch * s->seq * (s->heads + 2 * s->kv_heads) * s->head_dim;
    int64_t o = s->batch * s->seq * s->heads * s->head_dim;
    struct pair p[] = {make(c, n, 1), make(c, o, 0), make_sum(c, s->batch * s->heads * s->seq, 0),
                       make(c, o, 1), make(c, n, 1)};
    enum { QKV, OUT, LSE, DOUT, DQKV };

    DO(attention_forward, (c->ks, c->dt, p[OUT].device, p[LSE].device, p[QKV].device, s, scratch),
       (NULL, DT_F64, p[OUT].host, p[LSE].host, p[QKV].host, s, NULL));
    DO(attention_backward,
       (c->ks, c->dt, p[DQKV].device, p[DOUT].device, p[QKV].device, p[OUT].device, p[LSE].device,
        s, scratch),
       (NULL, DT_F64, p[DQKV].host, p[DOUT].host, p[QKV].host, p[OUT].host, p[LSE].host, s, NULL));
    compare(c, &p[OUT]);
    compare(c, &p[LSE]);
    compare(c, &p[DQKV]);
    drop(c, p, ARRAY_LEN(p));
}

/* Our own kernels: a shape that nobody prepared is theirs. In 16 bits half of the shapes have three
 * tiles of keys, or a tile's turn has nothing to be in the way of. */
static void check_attention_own(struct twins *c)
{
    bool tiles = c->dt != DT_F32, three = tiles && between(c, 0, 1) == 1;
    int64_t kv = between(c, 1, 2);
    struct attention_shape s = {between(c, 1, 2),
                                three ? between(c, 129, 200) : up_to(c, 200),
                                kv * between(c, 1, 3),
                                kv,
                                between(c, 1, tiles ? 16 : 20) * 8,
                                false};
    void *delta = NULL;

    heads_and_tokens(c, &s);
    twins_trouble(c, c->k->mem_alloc(&delta, (size_t)(s.batch * s.heads * s.seq) * sizeof(float)),
                  "mem_alloc");
    run_attention(c, &s, delta);
    c->k->mem_free(delta);
}

/* Whatever prepare() chooses, which is cuDNN where it is trusted; the sizes of heads that models
 * have, with and without shared key heads, in any order and in a fixed one. */
static void check_attention(struct twins *c)
{
    static const int64_t heads[][3] = {{64, 4, 4}, {128, 4, 2}, {64, 6, 2}};
    const int64_t *h = heads[c->round % (int)ARRAY_LEN(heads)];
    struct attention_shape s = {between(c, 1, 2), 70 + up_to(c, 130), h[1], h[2], h[0],
                                c->round % 2 == 0};
    struct attention_ready ready = {0};
    void *scratch = NULL;

    heads_and_tokens(c, &s);
    twins_trouble(c, c->k->attention_prepare(c->ks, c->dt, &s, true, &ready), "attention_prepare");
    twins_trouble(c, c->k->mem_alloc(&scratch, ready.scratch_bytes), "mem_alloc");
    snprintf(c->note, sizeof c->note, "%s", ready.by);
    run_attention(c, &s, scratch);
    c->k->mem_free(scratch);
}

/* The cache has more room than keys; what lies behind them is not to be read. */
static void check_attention_next(struct twins *c)
{
    int64_t kv = between(c, 1, 3), keys = up_to(c, 200);
    struct attention_shape s = {.batch = between(c, 1, 3),
                                .seq = keys + between(c, 0, 9),
                                .heads = kv * between(c, 1, 4),
                                .kv_heads = kv,
                                .head_dim = between(c, 0, 5) == 0 ? ATTENTION_MAX_HEAD_DIM
                                                                  : between(c, 1, 130)};

    heads_and_tokens(c, &s);
    struct pair p[] = {make(c, s.batch * s.heads * s.head_dim, 0),
                       make(c, s.batch * (s.heads + 2 * kv) * s.head_dim, 2),
                       make(c, s.batch * s.seq * 2 * kv * s.head_dim, 2)};

    DO(attention_next, (c->ks, c->dt, p[0].device, p[1].device, p[2].device, &s, keys),
       (NULL, DT_F64, p[0].host, p[1].host, p[2].host, &s, keys));
    compare(c, &p[0]);
    drop(c, p, ARRAY_LEN(p));
}

static void check_copy_rows(struct twins *c)
{
    int64_t rows = between(c, 1, 50), cols = between(c, 1, 90), wide = cols + between(c, 0, 40);

    rows_and_cols(c, rows, cols);
    struct pair p[] = {make(c, rows * cols, 0), make(c, rows * wide, 1)};
    size_t one = dtype_bytes(c->dt);

    DO(mem_copy_rows,
       (c->ks, p[0].device, (size_t)cols * one, p[1].device, (size_t)wide * one, (size_t)cols * one,
        rows),
       (NULL, p[0].host, (size_t)cols * 8, p[1].host, (size_t)wide * 8, (size_t)cols * 8, rows));
    compare(c, &p[0]);
    drop(c, p, ARRAY_LEN(p));
}

static void check_crossentropy(struct twins *c)
{
    bool wide = between(c, 0, 2) == 0; /* so wide that on the host's GPU a part has no room */
    int64_t rows = between(c, 1, wide ? 3 : 200),
            vocab = between(c, wide ? 10000 : 2, wide ? 12000 : 2000),
            stride = columns(c, vocab, vocab + 60);

    twins_shape(c, "%lld x %lld of %lld", (long long)rows, (long long)vocab, (long long)stride);
    struct pair p[] = {make(c, rows * stride, 8), make_sum(c, rows, 0), make(c, rows * stride, 1)};
    int32_t *target = mem_array((size_t)rows, sizeof *target), *device;

    for (int64_t r = 0; r < rows; r++) {
        target[r] = (int32_t)between(c, -1, vocab - 1);
    }
    device = put_tokens(c, target, rows);
    DO(crossentropy,
       (c->ks, c->dt, p[1].device, p[2].device, p[0].device, device, rows, vocab, stride, 0.5),
       (NULL, DT_F64, p[1].host, p[2].host, p[0].host, target, rows, vocab, stride, 0.5));
    compare(c, &p[1]);
    compare(c, &p[2]);
    drop(c, p, ARRAY_LEN(p));
    c->k->mem_free(device);
    free(target);
}

/* Ranks that share out the vocabulary, one after another; the last one may have none of it. */
static void check_cut_crossentropy(struct twins *c)
{
    int ranks = (int)between(c, 1, 3);
    int64_t rows = between(c, 1, 60), vocab = between(c, 1, 900);
    int64_t stride = columns(c, (vocab + ranks - 1) / ranks, (vocab + ranks - 1) / ranks + 40);
    int32_t *target = mem_array((size_t)rows, sizeof *target), *device;

    twins_shape(c, "%lld x %lld over %d of %lld", (long long)rows, (long long)vocab, ranks,
                (long long)stride);
    struct pair tallies = make_sum(c, ranks * rows * 3, 0), loss = make_sum(c, rows, 0);

    for (int64_t r = 0; r < rows; r++) {
        target[r] = (int32_t)between(c, -1, vocab - 1);
    }
    device = put_tokens(c, target, rows);
    struct pair logits[3];
    for (int i = 0; i < ranks; i++) {
        int64_t first = i * stride, n = vocab - first < stride ? vocab - first : stride;
        size_t at = (size_t)(i * rows * 3);

        logits[i] = make(c, rows * stride, 8);
        n = n < 0 ? 0 : n;
        DO(crossentropy_tally,
           (c->ks, c->dt, (char *)tallies.device + at * dtype_bytes(tallies.dt), logits[i].device,
            device, rows, first, n, stride),
           (NULL, DT_F64, tallies.host + at, logits[i].host, target, rows, first, n, stride));
    }
    for (int i = 0; i < ranks; i++) {
        int64_t first = i * stride, n = vocab - first < stride ? vocab - first : stride;

        n = n < 0 ? 0 : n;
        DO(crossentropy_join,
           (c->ks, c->dt, loss.device, logits[i].device, logits[i].device, tallies.device, ranks,
            device, rows, first, n, stride, 0.5),
           (NULL, DT_F64, loss.host, logits[i].host, logits[i].host, tallies.host, ranks, target,
            rows, first, n, stride, 0.5));
        compare(c, &loss);
        compare(c, &logits[i]);
    }
    drop(c, logits, (size_t)ranks);
    drop(c, &tallies, 1);
    drop(c, &loss, 1);
    c->k->mem_free(device);
    free(target);
}

static void check_embedding(struct twins *c)
{
    bool few = between(c, 0, 2) == 0; /* tokens, and so many rows of each that no list holds them */
    int64_t seq = between(c, few ? 200 : 1, 300), rows = seq * (few ? 32 : between(c, 1, 4));
    int64_t cols = columns(c, 1, few ? up_to(c, 40) : up_to(c, 400)),
            vocab = between(c, 1, few ? 2 : 1500);

    twins_shape(c, "%lld x %lld, vocabulary %lld", (long long)rows, (long long)cols,
                (long long)vocab);
    struct pair p[] = {make(c, vocab * cols, 1),     make(c, seq * cols, 1),
                       make(c, rows * cols, 0),      make(c, rows * cols, 1),
                       make_sum(c, vocab * cols, 1), make_sum(c, seq * cols, 1)};
    int32_t *token = mem_array((size_t)rows, sizeof *token), *device;

    for (int64_t r = 0; r < rows; r++) {
        token[r] = (int32_t)between(c, few ? 0 : -1, vocab - 1); /* -1: another rank's */
    }
    device = put_tokens(c, token, rows);
    DO(embedding_forward,
       (c->ks, c->dt, p[2].device, device, p[0].device, p[1].device, rows, seq, cols),
       (NULL, DT_F64, p[2].host, token, p[0].host, p[1].host, rows, seq, cols));
    DO(embedding_backward,
       (c->ks, c->dt, p[4].device, p[5].device, p[3].device, device, rows, seq, cols, vocab),
       (NULL, DT_F64, p[4].host, p[5].host, p[3].host, token, rows, seq, cols, vocab));
    compare(c, &p[2]);
    compare(c, &p[4]);
    compare(c, &p[5]);
    drop(c, p, ARRAY_LEN(p));
    c->k->mem_free(device);
    free(token);
}

static void same_bits(struct twins *c, const struct pair *p, const void *want)
{
    unsigned char *got = fetch(c, p);
    const unsigned char *wanted = want;
    size_t one = dtype_bytes(p->dt), all = (size_t)p->n * one, at = 0;

    while (at < all && got[at] == wanted[at]) {
        at++;
    }
    if (at < all && c->told[0] == '\0' && c->trouble == NULL) {
        snprintf(c->told, sizeof c->told, "element %zu of %lld, %s: other bits than the CPU's",
                 at / one, (long long)p->n, c->shape);
    }
    twins_worse(c, at == all ? 0 : INFINITY);
    free(got);
}

/* The sums are f64 on both sides. */
static void compare_double(struct twins *c, const double *device, double want)
{
    double got = NAN, off;

    twins_trouble(c, c->k->mem_get(c->ks, &got, device, sizeof got), "mem_get");
    off = fabs(got - want) / fmax(1, fabs(want));
    if (!(off <= twins_bound(DT_F64)) && c->told[0] == '\0' && c->trouble == NULL) {
        snprintf(c->told, sizeof c->told, "a sum, %s: got %.9g, wanted %.9g", c->shape, got, want);
    }
    twins_worse(c, off * twins_bound(c->dt) / twins_bound(DT_F64));
}

/* Columns far from dependent, for rounding shows in the others; and a zero matrix, which becomes
 * the seed's. */
static void check_orthonormalize(struct twins *c)
{
    int64_t cols = between(c, 1, 9), rows = cols + columns(c, 0, up_to(c, 3000));

    for (int zero = 0; zero < 2; zero++) {
        struct pair x = make_sum(c, rows * cols, zero ? 0 : 1);

        for (int64_t i = 0; !zero && i < cols; i++) {
            x.host[i * cols + i] = (double)(float)(x.host[i * cols + i] + sqrt((double)rows));
        }
        if (x.dt == DT_F32) {
            float *there = mem_array((size_t)(rows * cols), sizeof *there);

            twins_trouble(c, convert_cpu(NULL, DT_F32, there, DT_F64, x.host, x.n), "convert");
            twins_trouble(c, c->k->mem_put(c->ks, x.device, there, (size_t)x.n * sizeof *there),
                          "mem_put");
            free(there);
        }
        twins_shape(c, "%lld x %lld%s", (long long)rows, (long long)cols, zero ? ", zeros" : "");
        DO(orthonormalize, (c->ks, x.dt, x.device, rows, cols, 7),
           (NULL, DT_F64, x.host, rows, cols, 7));
        compare(c, &x);
        drop(c, &x, 1);
    }
}

static void check_reduce(struct twins *c)
{
    int64_t n = columns(c, 1, up_to(c, 300000));

    twins_shape(c, "%lld", (long long)n);
    struct pair p[] = {make(c, n, 1), make(c, n, 0.1)};
    double want[4] = {0}, *device;
    void *scalars = NULL;

    twins_trouble(c, c->k->mem_alloc(&scalars, sizeof want), "mem_alloc");
    device = scalars;
    DO(sum_add, (c->ks, c->dt, device, p[0].device, n), (NULL, DT_F64, want, p[0].host, n));
    DO(sumsq_add, (c->ks, c->dt, device + 1, p[1].device, n),
       (NULL, DT_F64, want + 1, p[1].host, n));
    DO(clip_scale, (c->ks, device + 2, device + 3, device + 1, 1.0, 0.25),
       (NULL, want + 2, want + 3, want + 1, 1.0, 0.25));
    for (int i = 0; i < 4; i++) {
        compare_double(c, device + i, want[i]);
    }
    c->k->mem_free(scalars);
    drop(c, p, ARRAY_LEN(p));
}

/* 16-bit parameters, with masters mostly, are to the bit what the CPU makes of the device's own
 * masters. */
static void check_adamw(struct twins *c)
{
    enum { P, MASTER, M, V, GRAD };
    int64_t n = columns(c, 1, up_to(c, 100000)), first = columns(c, 0, 99);
    bool narrow = dtype_accum(c->dt) != c->dt, masters = narrow && between(c, 0, 3) > 0;
    struct pair p[] = {make(c, n, 1), make_sum(c, n, 1), make_sum(c, n, 1), make_sum(c, n, 0),
                       make_sum(c, n, 1)};
    struct adamw_step how = {1e-2, 0.9, 0.95, 1e-8,
                             0.1,  0.5, 0.3,  {.seed = 7, .step = 3, .first = (uint64_t)first}};
    double scale = 0.5;
    void *device = NULL;

    if (between(c, 0, 1) == 0) { /* the columns of a matrix that one of several ranks has */
        how.noise.cols = (uint64_t)columns(c, 1, 50);
        how.noise.whole_cols = how.noise.cols + (uint64_t)columns(c, 0, 50);
        how.noise.skip = (uint64_t)columns(c, 0, 99);
    }
    twins_shape(c, "%lld%s, noise from %lld, columns %llu of %llu", (long long)n,
                masters ? ", masters" : "", (long long)first, (unsigned long long)how.noise.cols,
                (unsigned long long)how.noise.whole_cols);
    twins_trouble(c, c->k->mem_alloc(&device, sizeof scale), "mem_alloc");
    twins_trouble(c, c->k->mem_put(c->ks, device, &scale, sizeof scale), "mem_put");
    DO(adamw,
       (c->ks, c->dt, p[P].device, masters ? p[MASTER].device : NULL, p[M].device, p[V].device,
        p[GRAD].device, n, device, &how),
       (NULL, DT_F64, p[P].host, masters ? p[MASTER].host : NULL, p[M].host, p[V].host,
        p[GRAD].host, n, &scale, &how));
    for (int i = narrow ? MASTER : P; i <= V; i++) {
        compare(c, &p[i]);
    }
    if (masters) {
        void *want = mem_array((size_t)n, dtype_bytes(c->dt)), *master = fetch(c, &p[MASTER]);

        twins_trouble(c, convert_stochastic_cpu(NULL, c->dt, want, master, n, &how.noise),
                      "the CPU's convert_stochastic");
        same_bits(c, &p[P], want);
        twins_trouble(c, c->k->mem_zero(c->ks, p[P].device, (size_t)n * dtype_bytes(c->dt)),
                      "mem_zero");
        twins_trouble(
            c, c->k->convert_stochastic(c->ks, c->dt, p[P].device, p[MASTER].device, n, &how.noise),
            "convert_stochastic");
        same_bits(c, &p[P], want);
        free(want);
        free(master);
    }
    c->k->mem_free(device);
    drop(c, p, ARRAY_LEN(p));
}

/* To the CPU's bits, of numbers of all sizes: what is too large or too small for `to` as well. */
static void convert_one(struct twins *c, enum dtype to, enum dtype from)
{
    int64_t n = columns(c, 1, 5000);

    twins_shape(c, "%lld from type %d to %d", (long long)n, from, to);
    struct pair x = make_as(c, from, n, 1), y = make_as(c, to, n, 0);
    void *in = mem_array((size_t)n, dtype_bytes(from)),
         *want = mem_array((size_t)n, dtype_bytes(to));

    for (int64_t i = 0; i < n; i++) {
        x.host[i] = ldexp(x.host[i], (int)between(c, -160, 160) / (from == DT_F16 ? 8 : 1));
    }
    twins_trouble(c, convert_cpu(NULL, from, in, DT_F64, x.host, n), "the CPU's convert");
    twins_trouble(c, c->k->mem_put(c->ks, x.device, in, (size_t)n * dtype_bytes(from)), "mem_put");
    DO(convert, (c->ks, to, y.device, from, x.device, n), (NULL, to, want, from, in, n));
    same_bits(c, &y, want);
    free(in);
    free(want);
    drop(c, &x, 1);
    drop(c, &y, 1);
}

static void check_convert(struct twins *c)
{
    static const enum dtype every[] = {DT_F32, DT_F64, DT_BF16, DT_F16};

    for (size_t i = 0; i < ARRAY_LEN(every); i++) {
        convert_one(c, every[i], c->dt);
        convert_one(c, c->dt, every[i]);
    }
}

/* The plainest first: memory, a kernel, a library; what stands on them behind. */
const struct twin twins_of_operations[] = {
    {"copied rows", check_copy_rows, TWIN_ALL, 0},
    {"add", check_add, TWIN_ALL, 0},
    {"convert", check_convert, TWIN_ALL, 0},
    {"matmul", check_matmul, TWIN_ALL, 0},
    {"attention, our own", check_attention_own, TWIN_ALL, 0},
    {"attention", check_attention, TWIN_ALL, 3},
    {"attention, one more", check_attention_next, TWIN_ALL, 0},
    {"layernorm", check_layernorm, TWIN_ALL, 0},
    {"rmsnorm", check_rmsnorm, TWIN_ALL, 0},
    {"rope", check_rope, TWIN_ALL, 0},
    {"gelu", check_gelu, TWIN_ALL, 0},
    {"swiglu", check_swiglu, TWIN_ALL, 0},
    {"bias", check_bias, TWIN_ALL, 0},
    {"crossentropy", check_crossentropy, TWIN_ALL, 0},
    {"crossentropy, cut", check_cut_crossentropy, TWIN_ALL, 0},
    {"embedding", check_embedding, TWIN_ALL, 0},
    {"orthonormalize", check_orthonormalize, TWIN_F32, 0},
    {"reduce, clip", check_reduce, TWIN_ALL, 0},
    {"adamw", check_adamw, TWIN_ALL, 0},
    {0},
};

/* What rounding costs: 2^-24, 2^-9 or 2^-12 of a value, and as much again for each step between
 * input and output. */
double twins_bound(enum dtype dt)
{
    return dt == DT_BF16 ? 1e-2 : dt == DT_F16 ? 2e-3 : 1e-5;
}

bool twins_hold(struct twins *c, const struct twin *t, enum dtype dt, int rounds)
{
    c->dt = dt;
    c->worst = 0;
    c->trouble = NULL;
    c->trouble_rc = 0;
    c->told[0] = c->note[0] = '\0';
    for (int i = 0; i < rounds && c->trouble == NULL; i++) {
        c->shape[0] = '\0';
        c->round = i;
        t->check(c);
    }
    /* What a kernel did to memory shows here, not in the next row. */
    twins_trouble(c, c->k->stream_sync(c->ks), "stream_sync");
    return c->trouble == NULL && c->worst <= twins_bound(dt);
}
