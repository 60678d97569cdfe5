/* gpu-check - every CUDA operation beside its CPU twin in double, then a tiny model trained on both, then a run repeated.
 *
 * The reference is the CPU's f64 on the same f32 inputs; the measure is |difference| / |reference| over a whole tensor,
 * which must stay below 1e-5. Prints one table; exits 1 when a row fails. Without a GPU it says so and exits 0.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/train/optim.h"

enum { ROUNDS = 6, MAX_BUFFERS = 10 };

static const double bound = 1e-5;

struct check {
    const struct kops *cuda;
    struct kstream *ks;
    uint64_t seed;
    const char *row;
    double worst; /* of this row */
    const char *trouble;
    int failed;
};

static double uniform(struct check *c)
{
    c->seed = c->seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(c->seed >> 11) / (double)(UINT64_C(1) << 52) - 1.0;
}

static int64_t between(struct check *c, int64_t low, int64_t high)
{
    return low + (int64_t)((uniform(c) + 1) / 2 * (double)(high - low + 1));
}

/* One tensor on both sides: f32 on the device, f64 of the same values here. */
struct pair {
    void *device;
    double *host;
    int64_t n;
};

static void trouble(struct check *c, int rc, const char *what)
{
    if (rc != 0 && c->trouble == NULL) {
        c->trouble = what;
    }
}

static void worse(struct check *c, double off)
{
    if (!(off <= c->worst) && !isnan(c->worst)) { /* a NaN stays */
        c->worst = off;
    }
}

static struct pair make(struct check *c, int64_t n, double size)
{
    struct pair p = {.n = n, .host = mem_array((size_t)n + 1, sizeof *p.host)};
    float *f = mem_array((size_t)n + 1, sizeof *f);

    for (int64_t i = 0; i < n; i++) {
        f[i] = (float)(size * uniform(c));
        p.host[i] = (double)f[i];
    }
    trouble(c, c->cuda->mem_alloc(&p.device, (size_t)n * sizeof *f), "mem_alloc");
    trouble(c, c->cuda->mem_put(c->ks, p.device, f, (size_t)n * sizeof *f), "mem_put");
    free(f);
    return p;
}

static void compare(struct check *c, const struct pair *p)
{
    float *f = mem_array((size_t)p->n + 1, sizeof *f);
    double diff = 0, ref = 0, off;

    trouble(c, c->cuda->mem_get(c->ks, f, p->device, (size_t)p->n * sizeof *f), "mem_get");
    for (int64_t i = 0; i < p->n; i++) {
        diff += ((double)f[i] - p->host[i]) * ((double)f[i] - p->host[i]);
        ref += p->host[i] * p->host[i];
    }
    off = ref > 0 ? sqrt(diff / ref) : sqrt(diff);
    worse(c, off);
    free(f);
}

static void drop(struct check *c, struct pair *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        c->cuda->mem_free(p[i].device);
        free(p[i].host);
    }
}

static int32_t *put_tokens(struct check *c, int32_t *host, int64_t n)
{
    void *device = NULL;

    trouble(c, c->cuda->mem_alloc(&device, (size_t)n * sizeof *host), "mem_alloc");
    trouble(c, c->cuda->mem_put(c->ks, device, host, (size_t)n * sizeof *host), "mem_put");
    return device;
}

/* Runs an operation on both sides: DO(name, (cuda's arguments), (cpu's arguments)). */
#define DO(name, device_args, host_args)                                                           \
    do {                                                                                           \
        trouble(c, c->cuda->name device_args, "cuda " #name);                                      \
        trouble(c, kops_cpu()->name host_args, "cpu " #name);                                      \
    } while (0)

static void check_layernorm(struct check *c)
{
    int64_t rows = between(c, 1, 300), cols = between(c, 1, 1100);
    struct pair p[] = {make(c, rows * cols, 1), make(c, rows, 0),        make(c, rows, 0),
                       make(c, rows * cols, 3), make(c, cols, 1),        make(c, cols, 1),
                       make(c, rows * cols, 1), make(c, rows * cols, 1), make(c, cols, 1),
                       make(c, cols, 1)};
    enum { Y, MEAN, RSTD, X, G, B, DY, DX, DG, DB };

    DO(layernorm_forward,
       (c->ks, DT_F32, p[Y].device, p[MEAN].device, p[RSTD].device, p[X].device, p[G].device,
        p[B].device, rows, cols, 1e-5),
       (NULL, DT_F64, p[Y].host, p[MEAN].host, p[RSTD].host, p[X].host, p[G].host, p[B].host, rows,
        cols, 1e-5));
    DO(layernorm_backward,
       (c->ks, DT_F32, p[DX].device, p[DG].device, p[DB].device, p[DY].device, p[X].device,
        p[G].device, p[MEAN].device, p[RSTD].device, rows, cols),
       (NULL, DT_F64, p[DX].host, p[DG].host, p[DB].host, p[DY].host, p[X].host, p[G].host,
        p[MEAN].host, p[RSTD].host, rows, cols));
    if (cols > 1) { /* of a single column the mean is all there is: y is rounding alone */
        compare(c, &p[Y]);
        compare(c, &p[DX]);
        compare(c, &p[DG]);
    }
    compare(c, &p[DB]);
    drop(c, p, ARRAY_LEN(p));
}

static void check_rmsnorm(struct check *c)
{
    int64_t rows = between(c, 1, 300), cols = between(c, 1, 1100);
    struct pair p[] = {make(c, rows * cols, 1), make(c, rows, 0),        make(c, rows * cols, 3),
                       make(c, cols, 1),        make(c, rows * cols, 1), make(c, rows * cols, 1),
                       make(c, cols, 1)};
    enum { Y, RSTD, X, G, DY, DX, DG };

    DO(rmsnorm_forward,
       (c->ks, DT_F32, p[Y].device, p[RSTD].device, p[X].device, p[G].device, rows, cols, 1e-5),
       (NULL, DT_F64, p[Y].host, p[RSTD].host, p[X].host, p[G].host, rows, cols, 1e-5));
    DO(rmsnorm_backward,
       (c->ks, DT_F32, p[DX].device, p[DG].device, p[DY].device, p[X].device, p[G].device,
        p[RSTD].device, rows, cols),
       (NULL, DT_F64, p[DX].host, p[DG].host, p[DY].host, p[X].host, p[G].host, p[RSTD].host, rows,
        cols));
    compare(c, &p[Y]);
    compare(c, &p[RSTD]);
    compare(c, &p[DX]);
    compare(c, &p[DG]);
    drop(c, p, ARRAY_LEN(p));
}

static void check_rope(struct check *c)
{
    int64_t kv = between(c, 1, 3);
    struct attention_shape s = {between(c, 1, 3),      between(c, 1, 100),
                                kv * between(c, 1, 3), kv,
                                between(c, 1, 80) * 2, false};
    int64_t n = s.batch * s.seq * (s.heads + 2 * s.kv_heads) * s.head_dim;
    int64_t angles = s.seq * s.head_dim / 2;
    struct pair p[] = {make(c, n, 1), make(c, n, 1), make(c, angles, 1), make(c, angles, 1)};

    DO(rope_forward, (c->ks, DT_F32, p[0].device, p[2].device, p[3].device, &s),
       (NULL, DT_F64, p[0].host, p[2].host, p[3].host, &s));
    DO(rope_backward, (c->ks, DT_F32, p[1].device, p[2].device, p[3].device, &s),
       (NULL, DT_F64, p[1].host, p[2].host, p[3].host, &s));
    compare(c, &p[0]);
    compare(c, &p[1]);
    drop(c, p, ARRAY_LEN(p));
}

static void check_swiglu(struct check *c)
{
    int64_t rows = between(c, 1, 300), cols = between(c, 1, 700), n = rows * cols;
    struct pair p[] = {make(c, 2 * n, 4), make(c, n, 0), make(c, n, 1), make(c, 2 * n, 0)};

    DO(swiglu_forward, (c->ks, DT_F32, p[1].device, p[0].device, rows, cols),
       (NULL, DT_F64, p[1].host, p[0].host, rows, cols));
    DO(swiglu_backward, (c->ks, DT_F32, p[3].device, p[2].device, p[0].device, rows, cols),
       (NULL, DT_F64, p[3].host, p[2].host, p[0].host, rows, cols));
    compare(c, &p[1]);
    compare(c, &p[3]);
    drop(c, p, ARRAY_LEN(p));
}

static void check_gelu(struct check *c)
{
    int64_t n = between(c, 1, 100000);
    struct pair p[] = {make(c, n, 4), make(c, n, 0), make(c, n, 1), make(c, n, 0)};

    DO(gelu_forward, (c->ks, DT_F32, p[1].device, p[0].device, n),
       (NULL, DT_F64, p[1].host, p[0].host, n));
    DO(gelu_backward, (c->ks, DT_F32, p[3].device, p[2].device, p[0].device, n),
       (NULL, DT_F64, p[3].host, p[2].host, p[0].host, n));
    compare(c, &p[1]);
    compare(c, &p[3]);
    drop(c, p, ARRAY_LEN(p));
}

static void check_add(struct check *c)
{
    int64_t n = between(c, 1, 100000);
    struct pair p[] = {make(c, n, 1), make(c, n, 1), make(c, n, 0)};

    DO(add, (c->ks, DT_F32, p[2].device, p[0].device, p[1].device, n),
       (NULL, DT_F64, p[2].host, p[0].host, p[1].host, n));
    compare(c, &p[2]);
    drop(c, p, ARRAY_LEN(p));
}

static void check_bias(struct check *c)
{
    int64_t rows = between(c, 1, 3000), cols = between(c, 1, 700);
    struct pair p[] = {make(c, cols, 1), make(c, rows * cols, 1)};

    DO(bias_backward, (c->ks, DT_F32, p[0].device, p[1].device, rows, cols),
       (NULL, DT_F64, p[0].host, p[1].host, rows, cols));
    compare(c, &p[0]);
    drop(c, p, ARRAY_LEN(p));
}

/* Every way of storing the operands; without MATMUL_ADD also every tail. */
static void check_matmul(struct check *c)
{
    enum { C, A, B_, BIAS, RESIDUAL, PRE, AT };

    for (unsigned flags = 0; flags < 8; flags++) {
        int64_t m = between(c, 1, 300), n = between(c, 1, 300), k = between(c, 1, 300);
        struct pair p[] = {make(c, m * n, 1), make(c, m * k, 1), make(c, k * n, 1), make(c, n, 1),
                           make(c, m * n, 1), make(c, m * n, 1), make(c, m * n, 1)};
        int64_t bias = between(c, 0, 1), residual = between(c, 0, 1), gelu = between(c, 0, 2);
        struct matmul_tail device = {
            bias ? p[BIAS].device : NULL, residual ? p[RESIDUAL].device : NULL,
            gelu == 1 ? p[PRE].device : NULL, gelu == 2 ? p[AT].device : NULL};
        struct matmul_tail host = {bias ? p[BIAS].host : NULL, residual ? p[RESIDUAL].host : NULL,
                                   gelu == 1 ? p[PRE].host : NULL, gelu == 2 ? p[AT].host : NULL};
        bool add = (flags & MATMUL_ADD) != 0;

        DO(matmul,
           (c->ks, DT_F32, DT_F32, p[C].device, p[A].device, p[B_].device, m, n, k, flags,
            add ? NULL : &device),
           (NULL, DT_F64, DT_F64, p[C].host, p[A].host, p[B_].host, m, n, k, flags,
            add ? NULL : &host));
        compare(c, &p[C]);
        compare(c, &p[PRE]);
        drop(c, p, ARRAY_LEN(p));
    }
}

static void check_attention(struct check *c)
{
    int64_t kv = between(c, 1, 3);
    struct attention_shape s = {between(c, 1, 3),      between(c, 1, 200),
                                kv * between(c, 1, 3), kv,
                                between(c, 1, 20) * 8, false};
    int64_t n = s.batch * s.seq * (s.heads + 2 * s.kv_heads) * s.head_dim;
    int64_t o = s.batch * s.seq * s.heads * s.head_dim;
    struct pair p[] = {make(c, n, 1), make(c, o, 0), make(c, s.batch * s.heads * s.seq, 0),
                       make(c, o, 1), make(c, n, 1)};
    enum { QKV, OUT, LSE, DOUT, DQKV };
    struct attention_ready ready = {0}, unused;
    void *scratch = NULL;

    DO(attention_prepare, (c->ks, DT_F32, &s, true, &ready), (NULL, DT_F64, &s, true, &unused));
    trouble(c, c->cuda->mem_alloc(&scratch, ready.scratch_bytes), "mem_alloc");
    DO(attention_forward, (c->ks, DT_F32, p[OUT].device, p[LSE].device, p[QKV].device, &s, scratch),
       (NULL, DT_F64, p[OUT].host, p[LSE].host, p[QKV].host, &s, NULL));
    DO(attention_backward,
       (c->ks, DT_F32, p[DQKV].device, p[DOUT].device, p[QKV].device, p[OUT].device, p[LSE].device,
        &s, scratch),
       (NULL, DT_F64, p[DQKV].host, p[DOUT].host, p[QKV].host, p[OUT].host, p[LSE].host, &s, NULL));
    compare(c, &p[OUT]);
    compare(c, &p[LSE]);
    compare(c, &p[DQKV]);
    c->cuda->mem_free(scratch);
    drop(c, p, ARRAY_LEN(p));
}

static void check_crossentropy(struct check *c)
{
    int64_t rows = between(c, 1, 200), vocab = between(c, 2, 2000),
            stride = vocab + between(c, 0, 60);
    struct pair p[] = {make(c, rows * stride, 8), make(c, rows, 0), make(c, rows * stride, 1)};
    int32_t *target = mem_array((size_t)rows, sizeof *target), *device;

    for (int64_t r = 0; r < rows; r++) {
        target[r] = (int32_t)between(c, -1, vocab - 1);
    }
    device = put_tokens(c, target, rows);
    DO(crossentropy,
       (c->ks, DT_F32, p[1].device, p[2].device, p[0].device, device, rows, vocab, stride, 0.5),
       (NULL, DT_F64, p[1].host, p[2].host, p[0].host, target, rows, vocab, stride, 0.5));
    compare(c, &p[1]);
    compare(c, &p[2]);
    drop(c, p, ARRAY_LEN(p));
    c->cuda->mem_free(device);
    free(target);
}

static void check_embedding(struct check *c)
{
    int64_t seq = between(c, 1, 300), rows = seq * between(c, 1, 4), cols = between(c, 1, 400);
    int64_t vocab = between(c, 1, 500);
    struct pair p[] = {make(c, vocab * cols, 1), make(c, seq * cols, 1),   make(c, rows * cols, 0),
                       make(c, rows * cols, 1),  make(c, vocab * cols, 1), make(c, seq * cols, 1)};
    int32_t *token = mem_array((size_t)rows, sizeof *token), *device;

    for (int64_t r = 0; r < rows; r++) {
        token[r] = (int32_t)between(c, 0, vocab - 1);
    }
    device = put_tokens(c, token, rows);
    DO(embedding_forward,
       (c->ks, DT_F32, p[2].device, device, p[0].device, p[1].device, rows, seq, cols),
       (NULL, DT_F64, p[2].host, token, p[0].host, p[1].host, rows, seq, cols));
    DO(embedding_backward,
       (c->ks, DT_F32, p[4].device, p[5].device, p[3].device, device, rows, seq, cols, vocab),
       (NULL, DT_F64, p[4].host, p[5].host, p[3].host, token, rows, seq, cols, vocab));
    compare(c, &p[2]);
    compare(c, &p[4]);
    compare(c, &p[5]);
    drop(c, p, ARRAY_LEN(p));
    c->cuda->mem_free(device);
    free(token);
}

/* The sums are f64 on both sides. */
static void compare_double(struct check *c, const double *device, double want)
{
    double got = NAN, off;

    trouble(c, c->cuda->mem_get(c->ks, &got, device, sizeof got), "mem_get");
    off = fabs(got - want) / fmax(1, fabs(want));
    worse(c, off);
}

static void check_reduce_and_adamw(struct check *c)
{
    int64_t n = between(c, 1, 300000);
    struct pair p[] = {make(c, n, 1), make(c, n, 1), make(c, n, 1), make(c, n, 0.1)};
    struct adamw_step how = {1e-2, 0.9, 0.95, 1e-8, 0.1, 0.5, 0.3};
    double want[4] = {0}, *device;
    void *scalars = NULL;

    for (int64_t i = 0; i < n; i++) { /* the second moment is never negative */
        p[2].host[i] = 0;
    }
    trouble(c, c->cuda->mem_zero(c->ks, p[2].device, (size_t)n * sizeof(float)), "mem_zero");
    trouble(c, c->cuda->mem_alloc(&scalars, sizeof want), "mem_alloc");
    device = scalars;
    DO(sum_add, (c->ks, DT_F32, device, p[0].device, n), (NULL, DT_F64, want, p[0].host, n));
    DO(sumsq_add, (c->ks, DT_F32, device + 1, p[3].device, n),
       (NULL, DT_F64, want + 1, p[3].host, n));
    DO(clip_scale, (c->ks, device + 2, device + 3, device + 1, 1.0),
       (NULL, want + 2, want + 3, want + 1, 1.0));
    DO(adamw,
       (c->ks, DT_F32, p[0].device, p[1].device, p[2].device, p[3].device, n, device + 3, &how),
       (NULL, DT_F64, p[0].host, p[1].host, p[2].host, p[3].host, n, want + 3, &how));
    for (int i = 0; i < 4; i++) {
        compare_double(c, device + i, want[i]);
    }
    for (int i = 0; i < 3; i++) {
        compare(c, &p[i]);
    }
    c->cuda->mem_free(scalars);
    drop(c, p, ARRAY_LEN(p));
}

/* --- whole models -------------------------------------------------------------------------------------------------- */

enum { STEPS = 20, BATCH = 4, SEQ = 8 };

/* Twenty steps of the tiny model; the losses. */
static int train(const struct kops *k, double loss[STEPS], struct err *e)
{
    const struct optim_options o = {
        .schedule = {.lr = 1e-3, .min_lr = 1e-4, .warmup = 2, .steps = STEPS},
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .decay = 0.1,
        .clip = 1};
    const struct model_options mo = {.dt = DT_F32, .world = 1, .training = true};
    int32_t token[BATCH * SEQ], target[BATCH * SEQ];
    struct model_config c;
    struct model *m = NULL;
    struct optim *opt = NULL;
    int rc = config_builtin("tiny-gpt2", &c, e);

    for (int i = 0; i < BATCH * SEQ; i++) {
        token[i] = (i * 7 + i * i) % 48;
        target[i] = (i * 5 + 3) % 48;
    }
    rc = rc != 0 ? rc : model_open(&c, k, &mo, &m, e);
    rc = rc != 0 ? rc : model_reserve(m, BATCH, SEQ, e);
    rc = rc != 0 ? rc : model_init(m, 1, e);
    rc = rc != 0 ? rc : optim_open(m, &o, &opt, e);
    for (int s = 0; rc == 0 && s < STEPS; s++) {
        model_begin(m);
        model_learn(m, token, target, BATCH, SEQ, 1.0 / (BATCH * SEQ));
        optim_step(opt, s + 1);
        rc = model_loss(m, &loss[s], e);
    }
    optim_close(&opt);
    model_close(&m);
    return rc;
}

static void check_model(struct check *c)
{
    double cpu[STEPS] = {0}, cuda[STEPS] = {0};

    trouble(c, train(kops_cpu(), cpu, NULL), "cpu model");
    trouble(c, train(c->cuda, cuda, NULL), "cuda model");
    for (int s = 0; s < STEPS; s++) {
        double off = fabs(cuda[s] - cpu[s]) / fabs(cpu[s]);
        worse(c, off);
    }
}

/* Twice the same: every bit of every loss. */
static void check_repeat(struct check *c)
{
    double first[STEPS] = {0}, second[STEPS] = {0};

    trouble(c, train(c->cuda, first, NULL), "cuda model");
    trouble(c, train(c->cuda, second, NULL), "cuda model");
    for (int s = 0; s < STEPS; s++) {
        if (!(first[s] == second[s])) {
            c->worst = INFINITY;
        }
    }
}

static void run(struct check *c, const char *row, void (*one)(struct check *), int rounds)
{
    bool good;

    c->worst = 0;
    c->trouble = NULL;
    for (int i = 0; i < rounds && c->trouble == NULL; i++) {
        one(c);
    }
    good = c->trouble == NULL && c->worst <= bound;
    c->failed += !good;
    printf("%-24s %12.2e %10.0e  %s%s\n", row, c->worst, bound, good ? "ok" : "FAILED ",
           c->trouble != NULL ? c->trouble : "");
}

int main(void)
{
    struct check c = {.seed = 1};
    struct err e = {0};

    c.cuda = kops_cuda(0, &e);
    if (c.cuda == NULL) {
        printf("gpu-check: skipped, nothing was checked: %s\n", e.text);
        return 0;
    }
    if (c.cuda->stream_open(&c.ks) != 0) {
        printf("gpu-check: no stream on %s\n", c.cuda->device);
        return 1;
    }
    printf("%s\n%-24s %12s %10s\n", c.cuda->device, "operation", "difference", "bound");
    run(&c, "layernorm", check_layernorm, ROUNDS);
    run(&c, "rmsnorm", check_rmsnorm, ROUNDS);
    run(&c, "rope", check_rope, ROUNDS);
    run(&c, "gelu", check_gelu, ROUNDS);
    run(&c, "swiglu", check_swiglu, ROUNDS);
    run(&c, "add", check_add, ROUNDS);
    run(&c, "bias", check_bias, ROUNDS);
    run(&c, "matmul", check_matmul, ROUNDS);
    run(&c, "attention", check_attention, ROUNDS);
    run(&c, "crossentropy", check_crossentropy, ROUNDS);
    run(&c, "embedding", check_embedding, ROUNDS);
    run(&c, "reduce, clip, adamw", check_reduce_and_adamw, ROUNDS);
    run(&c, "20 steps, cpu beside cuda", check_model, 1);
    run(&c, "20 steps, bits repeat", check_repeat, 1);
    c.cuda->stream_close(&c.ks);
    printf("gpu-check: %s\n", c.failed == 0 ? "all rows hold" : "FAILED");
    return c.failed == 0 ? 0 : 1;
}
