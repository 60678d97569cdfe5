/* A sequence that grows token by token over its cache has the logits of one that is read whole. */
#include "agent/train/model.h"

#include "tests/unit/kernels/finite.h"
#ifdef HAVE_SIMT
#    include "tests/simt/device.h"
#endif

enum { MOST = 24, VOCAB = 48 };

static struct model *open_model(const struct model_config *c, const struct kops *k, enum dtype dt,
                                bool caching, int64_t seq)
{
    const struct model_options o = {.dt = dt, .world = 1, .caching = caching};
    struct model *m;
    struct err e;

    assert_int_equal(model_open(c, k, &o, &m, &e), 0);
    assert_int_equal(model_reserve(m, 1, seq, &e), 0);
    return m;
}

/* Larger weights than a model begins with, that attention is not flat. */
static double *weights_of(const struct model_config *c)
{
    struct model *m = open_model(c, kops_cpu(), DT_F64, false, 1);
    double *w = finite_array(m->layout.size), *first = (double *)(void *)m->param;

    assert_int_equal(model_init(m, 42, NULL), 0);
    for (int64_t i = 0; i < m->layout.size; i++) {
        w[i] = first[i] + 0.3 * w[i];
    }
    model_close(&m);
    return w;
}

static void put_weights(struct model *m, const double *w)
{
    void *host = mem_array((size_t)m->layout.size, dtype_bytes(m->dt));

    assert_int_equal(convert_cpu(NULL, m->dt, host, DT_F64, w, m->layout.size), 0);
    assert_int_equal(model_put(m, m->param, host, model_bytes(m, m->layout.size), NULL), 0);
    free(host);
}

static double logit(const struct model *m, const void *logits, int i)
{
    return m->accum == DT_F64 ? ((const double *)logits)[i] : (double)((const float *)logits)[i];
}

struct pair {
    struct model *whole, *grown;
    double tolerance;
};

static void same_logits(const struct pair *p, const int32_t *token, int64_t all, const void *got)
{
    double want[VOCAB];

    assert_int_equal(model_next(p->whole, token, all, want, NULL), 0);
    for (int v = 0; v < VOCAB; v++) {
        double a = logit(p->grown, got, v), b = logit(p->whole, want, v);

        if (!(fabs(a - b) <= p->tolerance * fmax(1, fabs(b)))) {
            fail_msg("token %lld, logit %d: %.12g grown, %.12g whole", (long long)all, v, a, b);
        }
    }
}

/* From prompts of some lengths, in pieces of one and two; the whole is read by the CPU. */
static void grows_alike_on(const struct kops *k, const struct model_config *c, enum dtype dt,
                           double tolerance)
{
    int64_t seq = c->context < MOST ? c->context : MOST;
    struct pair p = {open_model(c, kops_cpu(), dt, false, seq), open_model(c, k, dt, true, seq),
                     tolerance};
    double *w = weights_of(c), got[VOCAB];
    int32_t token[MOST];

    for (int i = 0; i < MOST; i++) {
        token[i] = (i * 7 + i * i) % VOCAB;
    }
    put_weights(p.whole, w);
    put_weights(p.grown, w);
    for (int64_t prompt = 1; prompt <= seq; prompt += 3) {
        int64_t piece = 1 + prompt % 2;

        model_forget(p.grown);
        assert_int_equal(model_extend(p.grown, token, prompt, got, NULL), 0);
        same_logits(&p, token, prompt, got);
        for (int64_t n = prompt; n + piece <= seq; n += piece) {
            assert_int_equal(model_extend(p.grown, token + n, piece, got, NULL), 0);
            assert_int_equal(p.grown->known, n + piece);
            same_logits(&p, token, n + piece, got);
        }
    }
    free(w);
    model_close(&p.whole);
    model_close(&p.grown);
}

static void grows_alike(const struct model_config *c, enum dtype dt, double tolerance)
{
    grows_alike_on(kops_cpu(), c, dt, tolerance);
}

static struct model_config shape(const char *name)
{
    struct model_config c;

    assert_int_equal(config_builtin(name, &c, NULL), 0);
    return c;
}

static void test_families(void **state)
{
    const struct model_config gpt2 = shape("tiny-gpt2");
    struct model_config llama =
        shape("tiny-llama"); /* grouped heads, RoPE with Llama 3's scaling */

    (void)state;
    grows_alike(&gpt2, DT_F64, 1e-10);
    grows_alike(&gpt2, DT_F32, 1e-4);
    grows_alike(&llama, DT_F64, 1e-10);
    grows_alike(&llama, DT_F32, 1e-4);
    llama.kv_heads = 1;
    llama.tied = true;
    llama.attention_bias = llama.mlp_bias = true;
    grows_alike(&llama, DT_F32, 1e-4);
}

/* Rounding to 16 bits comes at other places: some 2^-8 and 2^-11 of what the blocks add up. */
static void test_narrow_types(void **state)
{
    const struct model_config llama = shape("tiny-llama");

    (void)state;
    grows_alike(&llama, DT_BF16, 0.1);
    grows_alike(&llama, DT_F16, 0.01);
}

/* The CUDA twins, on the host's GPU. */
static void test_on_a_gpu(void **state)
{
    (void)state;
#ifdef HAVE_SIMT
    const struct model_config gpt2 = shape("tiny-gpt2"), llama = shape("tiny-llama");

    simt_schedule(2);
    grows_alike_on(simt_kops(), &gpt2, DT_F32, 1e-4);
    grows_alike_on(simt_kops(), &llama, DT_F32, 1e-4);
    grows_alike_on(simt_kops(), &llama, DT_BF16, 0.1);
#else
    print_message("skipped: sanitizers do not understand threads that are fibers\n");
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_narrow_types),
        cmocka_unit_test(test_on_a_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
