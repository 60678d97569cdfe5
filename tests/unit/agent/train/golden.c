/* Small models made by transformers, and what PyTorch computed from them in f64:
 * tests/golden/make.py. */
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "agent/train/optim.h"
#include "agent/train/tensorset.h"
#include "agent/train/weights.h"
#include "kernels/float16.h"

enum { STEPS = 20, BATCH = 2, SEQ = 12, VOCAB = 48, SCALE = 1024 };

struct golden {
    char dir[PATH_MAX];
    struct tensorset *set;
    struct model *m;
};

static const double *golden_f64(const struct golden *g, const char *name, size_t n)
{
    const struct safetensors *in;
    const struct st_tensor *t = tensorset_find(g->set, slice_str(name), &in);
    double *copy = mem_array(n, sizeof *copy);

    if (t == NULL || t->dtype != ST_F64 || t->size_bytes != n * sizeof *copy ||
        safetensors_read(in, t, 0, copy, n * sizeof *copy, NULL) != 0) {
        fail_msg("golden tensor %s", name);
    }
    return copy;
}

static struct golden open_golden(const char *family, const char *base, enum dtype dt)
{
    const char *source = getenv("MIRROR_SOURCE");
    const struct model_options o = {.dt = dt, .world = 1, .training = true};
    struct model_config c;
    char path[PATH_MAX + 16];
    struct golden g;
    struct err e;

    snprintf(g.dir, sizeof g.dir, "%s/tests/golden/%s", source != NULL ? source : ".", family);
    snprintf(path, sizeof path, "%s/config.json", g.dir);
    assert_int_equal(config_load(path, &c, &e), 0);
    assert_string_equal(config_family(&c), family);
    assert_int_equal(tensorset_open(g.dir, base, &g.set, &e), 0);
    assert_int_equal(model_open(&c, kops_cpu(), &o, &g.m, &e), 0);
    assert_int_equal(model_reserve(g.m, BATCH, SEQ, &e), 0);
    const struct weights_part part = {"", g.m->master, g.m->master_held, g.m->accum};
    assert_int_equal(weights_load(g.m, &part, 1, g.dir, "model", NULL, &e), 0);
    if (g.m->master != g.m->param) {
        assert_int_equal(
            g.m->k->convert(g.m->ks, dt, g.m->param, g.m->accum, g.m->master, g.m->layout.size), 0);
    }
    return g;
}

static void close_golden(struct golden *g)
{
    model_close(&g->m);
    tensorset_close(&g->set);
}

/* The step's inputs, and the tokens that follow them. */
static void tokens_of(const struct golden *g, int step, int32_t token[BATCH * SEQ],
                      int32_t target[BATCH * SEQ])
{
    int32_t all[STEPS][BATCH][SEQ + 1];
    const struct safetensors *in;
    const struct st_tensor *t = tensorset_find(g->set, SLICE("tokens"), &in);

    assert_non_null(t);
    assert_int_equal(t->size_bytes, sizeof all);
    assert_int_equal(safetensors_read(in, t, 0, all, sizeof all, NULL), 0);
    for (int b = 0; b < BATCH; b++) {
        memcpy(token + b * SEQ, all[step][b], SEQ * sizeof *token);
        memcpy(target + b * SEQ, all[step][b] + 1, SEQ * sizeof *target);
    }
}

static double element(const void *p, enum dtype dt, int64_t i)
{
    double x;
    float f;

    if (dt == DT_F64) {
        memcpy(&x, (const char *)p + i * 8, sizeof x);
        return x;
    }
    memcpy(&f, (const char *)p + i * 4, sizeof f);
    return (double)f;
}

static void expect_near(const char *what, double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance * fmax(1, fabs(want)))) {
        fail_msg("%s: %.15g, PyTorch has %.15g", what, got, want);
    }
}

static void expect_logits(const struct golden *g, double tolerance)
{
    const double *want = golden_f64(g, "logits", BATCH * SEQ * VOCAB);
    int32_t token[BATCH * SEQ], target[BATCH * SEQ];
    char got[VOCAB * sizeof(double)];

    tokens_of(g, 0, token, target);
    for (int b = 0; b < BATCH; b++) {
        for (int n = 1; n <= SEQ; n++) {
            assert_int_equal(model_next(g->m, token + b * SEQ, n, got, NULL), 0);
            for (int v = 0; v < VOCAB; v++) {
                expect_near("logits", element(got, g->m->accum, v),
                            want[(b * SEQ + n - 1) * VOCAB + v], tolerance);
            }
        }
    }
    free((void *)(uintptr_t)want);
}

/* Of the mean loss over the first batch, every element of every tensor. */
static void expect_gradients(const struct golden *g, double tolerance)
{
    struct model *m = g->m;
    int32_t token[BATCH * SEQ], target[BATCH * SEQ];

    tokens_of(g, 0, token, target);
    model_begin(m);
    model_forward_backward(m, token, target, BATCH, SEQ, 1.0 / (BATCH * SEQ));
    for (int i = 0; i < m->layout.hubs; i++) {
        const struct hub_tensor *h = &m->layout.hub[i];
        int64_t at = m->layout.tensor[h->tensor].offset + h->first_row * h->cols;
        const char *outer = strcmp(config_family(&m->config), "gpt2") == 0 ? "transformer." : "";
        const double *want;
        char name[128];

        snprintf(name, sizeof name, "grad.%s%s", outer, h->name);
        want = golden_f64(g, name, (size_t)(h->rows * h->cols));
        for (int64_t r = 0; r < h->rows; r++) {
            for (int64_t c = 0; c < h->cols; c++) {
                expect_near(name, element(m->grad, m->accum, at + r * h->cols + c),
                            want[h->transposed ? c * h->rows + r : r * h->cols + c], tolerance);
            }
        }
        free((void *)(uintptr_t)want);
    }
}

static void expect_losses(const struct golden *g, double tolerance)
{
    const struct optim_options o = {
        .schedule = {.lr = 0.01, .min_lr = 0.001, .warmup = 4, .steps = STEPS},
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .decay = 0.1,
        .clip = 0.5};
    const double *want = golden_f64(g, "losses", STEPS);
    int32_t token[BATCH * SEQ], target[BATCH * SEQ];
    struct optim *opt;
    double sum;

    assert_int_equal(optim_open(g->m, &o, &opt, NULL), 0);
    for (int s = 0; s < STEPS; s++) {
        tokens_of(g, s, token, target);
        model_begin(g->m);
        model_forward_backward(g->m, token, target, BATCH, SEQ, 1.0 / (BATCH * SEQ));
        assert_int_equal(model_loss(g->m, &sum, NULL), 0);
        expect_near("loss", sum / (BATCH * SEQ), want[s], tolerance);
        optim_step(opt, s + 1);
    }
    assert_true(want[STEPS - 1] < want[0] - 0.5); /* it was worth looking at */
    optim_close(&opt);
    free((void *)(uintptr_t)want);
}

static void test_f64(void **state)
{
    static const char *const family[] = {"gpt2", "llama"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(family); i++) {
        struct golden g = open_golden(family[i], "golden", DT_F64);

        expect_logits(&g, 1e-9);
        expect_gradients(&g, 1e-9);
        expect_losses(&g, 1e-9);
        close_golden(&g);
    }
}

static void test_f32(void **state)
{
    static const char *const family[] = {"gpt2", "llama"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(family); i++) {
        struct golden g = open_golden(family[i], "golden", DT_F32);

        expect_logits(&g, 1e-4);
        expect_gradients(&g, 1e-4);
        expect_losses(&g, 1e-4);
        close_golden(&g);
    }
}

/* --- sixteen bits ----------------------------------------------------------------------------- */

/* |x - exact|^2 and |exact|^2 of some tensors. */
struct distance {
    double ours, theirs, size;
};

static void add_tensor(struct distance *d, const double *ours, const float *exact,
                       const uint16_t *theirs, enum st_dtype dt, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float other_f = dt == ST_BF16 ? bf16_widen(theirs[i]) : f16_widen(theirs[i]);
        double want = (double)exact[i], other = (double)other_f;

        d->ours += (ours[i] - want) * (ours[i] - want);
        d->theirs += (other - want) * (other - want);
        d->size += want * want;
    }
}

/* n elements of the golden tensor "<kind>.<name>". */
static void *golden_part(const struct tensorset *set, const char *kind, const char *name,
                         enum st_dtype dt, size_t n)
{
    size_t bytes = n * (dt == ST_F32 ? 4 : 2);
    void *copy = mem_new(bytes + 1);
    const struct safetensors *in;
    const struct st_tensor *t;
    char full[160];

    snprintf(full, sizeof full, "%s.%s", kind, name);
    t = tensorset_find(set, slice_str(full), &in);
    if (t == NULL || t->dtype != dt || t->size_bytes != bytes ||
        safetensors_read(in, t, 0, copy, bytes, NULL) != 0) {
        fail_msg("golden tensor %s", full);
    }
    return copy;
}

static struct distance compare(const struct golden *g, const char *name, const double *ours,
                               int64_t n)
{
    enum st_dtype dt = g->m->dt == DT_BF16 ? ST_BF16 : ST_F16;
    void *exact = golden_part(g->set, "exact", name, ST_F32, (size_t)n);
    void *theirs = golden_part(g->set, "narrow", name, dt, (size_t)n);
    struct distance d = {0};

    add_tensor(&d, ours, exact, theirs, dt, n);
    free(exact);
    free(theirs);
    return d;
}

/* Rounding to bf16 costs 2^-9 a step, and PyTorch is 0.7 to 2.1 % off in a tensor after two blocks
 * and back. Ours rounds at mostly the same places, so the luck of one batch is the difference: all
 * gradients together were 0.67 and 1.14 of PyTorch's distance on this one, 0.65 and 0.84 on the
 * next; in f16, eight times finer, 0.91 and 0.83. A slip in the arithmetic (a sum kept in 16 bits)
 * shows as more. */
static void no_farther(const char *family, const char *what, const struct distance *d, double most)
{
    if (!(sqrt(d->ours) <= most * sqrt(d->theirs))) {
        fail_msg("%s, %s: %.4f off, PyTorch %.4f", family, what, sqrt(d->ours / d->size),
                 sqrt(d->theirs / d->size));
    }
}

static void narrow_logits(const struct golden *f64, const struct golden *g, const char *family)
{
    int32_t token[BATCH * SEQ], target[BATCH * SEQ];
    double *ours = mem_array(BATCH * SEQ * VOCAB, sizeof *ours);
    struct distance d;
    float got[VOCAB];

    tokens_of(f64, 0, token, target);
    for (int r = 0; r < BATCH * SEQ; r++) {
        assert_int_equal(model_next(g->m, token + r / SEQ * SEQ, r % SEQ + 1, got, NULL), 0);
        for (int v = 0; v < VOCAB; v++) {
            ours[r * VOCAB + v] = (double)got[v];
        }
    }
    d = compare(g, "logits", ours, BATCH * SEQ * VOCAB);
    no_farther(family, "logits", &d, 1.25);
    free(ours);
}

/* In the file's order. */
static double *our_gradient(const struct model *m, const struct hub_tensor *h)
{
    int64_t at = m->layout.tensor[h->tensor].offset + h->first_row * h->cols;
    double *ours = mem_array((size_t)(h->rows * h->cols), sizeof *ours);

    for (int64_t r = 0; r < h->rows; r++) {
        for (int64_t c = 0; c < h->cols; c++) {
            ours[h->transposed ? c * h->rows + r : r * h->cols + c] =
                element(m->grad, m->accum, at + r * h->cols + c);
        }
    }
    return ours;
}

static void narrow_gradients(const struct golden *f64, const struct golden *g, const char *family)
{
    struct model *m = g->m;
    int32_t token[BATCH * SEQ], target[BATCH * SEQ];
    struct distance all = {0};

    tokens_of(f64, 0, token, target);
    model_begin(m);
    model_forward_backward(m, token, target, BATCH, SEQ, (double)SCALE / (BATCH * SEQ));
    for (int i = 0; i < m->layout.hubs; i++) {
        const struct hub_tensor *h = &m->layout.hub[i];
        double *ours = our_gradient(m, h);
        struct distance d;
        char name[128];

        snprintf(name, sizeof name, "grad.%s%s", strcmp(family, "gpt2") == 0 ? "transformer." : "",
                 h->name);
        d = compare(g, name, ours, h->rows * h->cols);
        no_farther(family, name, &d, 2);
        all.ours += d.ours;
        all.theirs += d.theirs;
        all.size += d.size;
        free(ours);
    }
    no_farther(family, "all gradients", &all, 1.25);
}

static void compare_narrow(const char *base, enum dtype dt)
{
    static const char *const family[] = {"gpt2", "llama"};

    for (size_t i = 0; i < ARRAY_LEN(family); i++) {
        struct golden f64 = open_golden(family[i], "golden", DT_F64);
        struct golden g = open_golden(family[i], base, dt);

        narrow_logits(&f64, &g, family[i]);
        narrow_gradients(&f64, &g, family[i]);
        close_golden(&f64);
        close_golden(&g);
    }
}

static void test_bf16(void **state)
{
    (void)state;
    compare_narrow("golden-bf16", DT_BF16);
}

static void test_f16(void **state)
{
    (void)state;
    compare_narrow("golden-f16", DT_F16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f64),
        cmocka_unit_test(test_f32),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_f16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
