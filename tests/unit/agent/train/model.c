#include "agent/train/model.h"

#include "agent/train/optim.h"
#include "tests/unit/kernels/finite.h"

enum { BATCH = 3, SEQ = 7 };

static struct model *open_model(const struct model_config *c, const struct model_options *o)
{
    struct model *m;
    struct err e;

    assert_int_equal(model_open(c, kops_cpu(), o, &m, &e), 0);
    assert_int_equal(model_reserve(m, BATCH, SEQ, &e), 0);
    assert_int_equal(model_init(m, 42, &e), 0);
    return m;
}

static struct model_config shape(const char *name)
{
    struct model_config c;

    assert_int_equal(config_builtin(name, &c, NULL), 0);
    return c;
}

static struct model *tiny(enum dtype dt)
{
    const struct model_config c = shape("tiny-gpt2");
    const struct model_options o = {.dt = dt, .world = 1, .training = true};

    return open_model(&c, &o);
}

static void fill_tokens(int32_t *token, int32_t *target, int n, int vocab)
{
    for (int i = 0; i < n; i++) {
        token[i] = (i * 7 + i * i) % vocab;
        target[i] = (i * 5 + 3) % vocab;
    }
}

struct loss_of {
    struct model *m;
    int32_t token[BATCH * SEQ], target[BATCH * SEQ];
};

static double value(void *arg)
{
    struct loss_of *l = arg;
    double sum;

    model_begin(l->m);
    model_measure(l->m, l->token, l->target, BATCH, SEQ);
    assert_int_equal(model_loss(l->m, &sum, NULL), 0);
    return sum / (BATCH * SEQ);
}

/* Every tensor's gradient, some elements of each, against differences of the whole model's loss. */
static void expect_gradient(const struct model_config *c)
{
    const struct model_options o = {.dt = DT_F64, .world = 1, .training = true};
    struct loss_of l = {.m = open_model(c, &o)};
    struct model *m = l.m;
    double *p = (double *)(void *)m->param, *g = mem_array((size_t)m->layout.size, sizeof *g);

    fill_tokens(l.token, l.target, BATCH * SEQ, 48);
    /* A small start makes flat attention; larger weights exercise every term. */
    for (int64_t i = 0; i < m->layout.size; i++) {
        p[i] += 0.3 * finite_random();
    }
    model_begin(m);
    model_forward_backward(m, l.token, l.target, BATCH, SEQ, 1.0 / (BATCH * SEQ));
    memcpy(g, m->grad, model_bytes(m, m->layout.size));
    for (int i = 0; i < m->layout.hubs; i++) {
        const struct hub_tensor *h = &m->layout.hub[i];
        int64_t n = h->rows * h->cols, step = n / 12 + 1;
        int64_t at = m->layout.tensor[h->tensor].offset + h->first_row * h->cols;

        for (int64_t j = 0; j < n; j += step) {
            finite_check(h->name, value, &l, p + at + j, g + at + j, 0, 1);
        }
    }
    free(g);
    model_close(&l.m);
}

static void test_gradient_of_gpt2(void **state)
{
    struct model_config c = shape("tiny-gpt2");

    (void)state;
    expect_gradient(&c);
    c.tied = false;
    expect_gradient(&c);
}

static void test_gradient_of_llama(void **state)
{
    struct model_config c = shape("tiny-llama");

    (void)state;
    expect_gradient(&c);
    c.tied = c.attention_bias = c.mlp_bias = true;
    c.kv_heads = 1;
    c.head_dim = 6;
    expect_gradient(&c);
}

/* Keeping every K-th block's input and going forward again gives the same bits. */
static void test_recompute_changes_nothing(void **state)
{
    struct model_config c = shape("tiny-llama");
    size_t kept = 0;
    float *want = NULL;

    (void)state;
    c.layers = 5;
    for (int k = 0; k <= 5; k++) {
        const struct model_options o = {.dt = DT_F32, .world = 1, .training = true, .recompute = k};
        struct loss_of l = {.m = open_model(&c, &o)};
        size_t bytes = model_bytes(l.m, l.m->layout.size);

        fill_tokens(l.token, l.target, BATCH * SEQ, 48);
        model_begin(l.m);
        model_forward_backward(l.m, l.token, l.target, BATCH, SEQ, 1.0 / (BATCH * SEQ));
        model_forward_backward(l.m, l.target, l.token, BATCH, SEQ, 1.0 / (BATCH * SEQ));
        if (k == 0) {
            kept = l.m->taken.activations_bytes;
            want = mem_new(bytes);
            memcpy(want, l.m->grad, bytes);
        }
        assert_memory_equal(want, l.m->grad, bytes);
        assert_true(k == 0 || k == 5 || l.m->taken.activations_bytes < kept);
        model_close(&l.m);
    }
    free(want);
}

static int allocations;

static int counted_alloc(void **out, size_t size_bytes)
{
    allocations++;
    return mem_alloc_cpu(out, size_bytes);
}

/* What is taken is what was planned, and steps take nothing. */
static void test_memory_is_planned_and_steps_take_none(void **state)
{
    const struct model_config c = shape("tiny-llama");
    const struct model_options o = {.dt = DT_F32, .world = 1, .training = true};
    const struct optim_options oo = {.schedule = {.lr = 1e-3, .steps = 9}, .clip = 1};
    struct loss_of l;
    struct kops k = *kops_cpu();
    struct optim *opt;
    int before;

    (void)state;
    k.mem_alloc = counted_alloc;
    assert_int_equal(model_open(&c, &k, &o, &l.m, NULL), 0);
    assert_int_equal(allocations, 0);
    assert_int_equal(model_reserve(l.m, BATCH, SEQ, NULL), 0);
    assert_int_equal(model_init(l.m, 1, NULL), 0);
    assert_int_equal(optim_open(l.m, &oo, &opt, NULL), 0);
    fill_tokens(l.token, l.target, BATCH * SEQ, 48);
    before = allocations;
    for (int step = 1; step < 4; step++) {
        model_begin(l.m);
        model_forward_backward(l.m, l.token, l.target, BATCH, SEQ, 1);
        optim_step(opt, step);
        value(&l);
    }
    assert_int_equal(allocations, before);
    optim_close(&opt);
    model_close(&l.m);
}

static void test_first_loss_is_nearly_uniform(void **state)
{
    struct loss_of l = {.m = tiny(DT_F64)};

    (void)state;
    fill_tokens(l.token, l.target, BATCH * SEQ, 48);
    assert_true(fabs(value(&l) - log(48)) < 0.05);
    model_close(&l.m);
}

/* Sequences one at a time, gradients added up, equal the batch. */
static void test_accumulation_equals_a_big_batch(void **state)
{
    struct loss_of l = {.m = tiny(DT_F64)};
    struct model *m = l.m;
    size_t n = (size_t)m->layout.size;
    double *one = mem_array(n, sizeof *one), *big = (double *)(void *)m->grad, loss[2];

    (void)state;
    fill_tokens(l.token, l.target, BATCH * SEQ, 48);
    model_begin(m);
    for (int b = 0; b < BATCH; b++) {
        model_forward_backward(m, l.token + b * SEQ, l.target + b * SEQ, 1, SEQ,
                               1.0 / (BATCH * SEQ));
    }
    assert_int_equal(model_loss(m, &loss[0], NULL), 0);
    memcpy(one, m->grad, n * sizeof *one);
    model_begin(m);
    model_forward_backward(m, l.token, l.target, BATCH, SEQ, 1.0 / (BATCH * SEQ));
    assert_int_equal(model_loss(m, &loss[1], NULL), 0);
    assert_true(fabs(loss[0] - loss[1]) <= 1e-12 * fabs(loss[1]));
    for (size_t i = 0; i < n; i++) {
        assert_true(fabs(one[i] - big[i]) <= 1e-14);
    }
    free(one);
    model_close(&l.m);
}

/* Whatever the weights' type, gradients add up in f32: only the order of sums differs. */
static void test_accumulation_of_16_bits(void **state)
{
    static const enum dtype types[] = {DT_BF16, DT_F16};

    (void)state;
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        struct loss_of l = {.m = tiny(types[t])};
        struct model *m = l.m;
        size_t n = (size_t)m->layout.size;
        float *one = mem_array(n, sizeof *one), *big = (float *)(void *)m->grad;

        fill_tokens(l.token, l.target, BATCH * SEQ, 48);
        model_begin(m);
        for (int b = 0; b < BATCH; b++) {
            model_forward_backward(m, l.token + b * SEQ, l.target + b * SEQ, 1, SEQ,
                                   1.0 / (BATCH * SEQ));
        }
        memcpy(one, m->grad, n * sizeof *one);
        model_begin(m);
        model_forward_backward(m, l.token, l.target, BATCH, SEQ, 1.0 / (BATCH * SEQ));
        for (size_t i = 0; i < n; i++) {
            assert_true(fabsf(one[i] - big[i]) <= 1e-6f);
        }
        free(one);
        model_close(&l.m);
    }
}

/* The head works through the rows in pieces: their number must not matter. */
static void test_head_in_pieces(void **state)
{
    struct loss_of l = {.m = tiny(DT_F64)};
    struct model *m = l.m;
    size_t n = (size_t)m->layout.size;
    double *whole = mem_array(n, sizeof *whole), *got = (double *)(void *)m->grad;

    (void)state;
    fill_tokens(l.token, l.target, BATCH * SEQ, 48);
    model_begin(m);
    model_forward_backward(m, l.token, l.target, BATCH, SEQ, 1);
    memcpy(whole, m->grad, n * sizeof *whole);
    m->head_rows = 4;
    model_begin(m);
    model_forward_backward(m, l.token, l.target, BATCH, SEQ, 1);
    for (size_t i = 0; i < n; i++) {
        assert_true(fabs(whole[i] - got[i]) <= 1e-12);
    }
    free(whole);
    model_close(&l.m);
}

/* Pieces are long and whole tiles; what is shorter is one piece. */
static void test_pieces_of_the_head(void **state)
{
    const struct model_config gpt2 = shape("gpt2-124m"), llama = shape("llama-1b");
    const struct model_options bf16 = {.dt = DT_BF16, .world = 1, .training = true};
    const struct model_options f32 = {.dt = DT_F32, .world = 1, .training = true};
    const struct model_options forward = {.dt = DT_BF16, .world = 1};
    struct model *m;

    (void)state;
    assert_int_equal(model_open(&gpt2, kops_cpu(), &bf16, &m, NULL), 0);
    assert_int_equal(model_head_rows(m, 65536), 8192);
    assert_int_equal(model_head_rows(m, 1000), 1000);
    model_close(&m);
    assert_int_equal(model_open(&llama, kops_cpu(), &bf16, &m, NULL), 0);
    assert_int_equal(model_head_rows(m, 32768), 8192);
    model_close(&m);
    assert_int_equal(model_open(&llama, kops_cpu(), &f32, &m, NULL), 0);
    assert_int_equal(model_head_rows(m, 32768), 4096); /* 2 GiB */
    model_close(&m);
    assert_int_equal(model_open(&gpt2, kops_cpu(), &forward, &m, NULL), 0);
    assert_int_equal(model_head_rows(m, 65536), 2560); /* 256 MiB: a reader has no use for more */
    model_close(&m);
}

/* Whatever lay in the gradients: of other batches, twice added up, or no numbers at all. */
static void forgets(const struct model_config *c)
{
    const struct model_options o = {.dt = DT_F32, .world = 2, .training = true};
    struct loss_of l = {.m = open_model(c, &o)};
    struct model *m = l.m;
    size_t bytes = model_bytes(m, m->layout.size);
    float *want = mem_new(bytes), *grad = (float *)(void *)m->grad;

    fill_tokens(l.token, l.target, BATCH * SEQ, 48);
    for (int turn = 0; turn < 3; turn++) {
        model_begin(m);
        model_forward_backward(m, l.token, l.target, BATCH, SEQ, 1);
        if (turn == 0) {
            memcpy(want, grad, bytes);
        }
        assert_memory_equal(want, grad, bytes);
        model_forward_backward(m, l.target, l.token, BATCH, SEQ, 1);
        for (int i = 0; turn == 1 && i < m->layout.tensors; i++) {
            const struct tensor *t = &m->layout.tensor[i];

            for (int64_t j = 0; j < t->rows * t->cols; j++) {
                grad[t->offset + j] = NAN;
            }
        }
    }
    free(want);
    model_close(&l.m);
}

static void test_a_step_forgets_the_last_ones_gradients(void **state)
{
    struct model_config c = shape("tiny-gpt2");

    (void)state;
    forgets(&c);
    c.tied = false;
    forgets(&c);
    c = shape("tiny-llama");
    forgets(&c);
    c.tied = true;
    forgets(&c);
}

static void test_learning_one_batch_by_heart(void **state)
{
    struct optim_options o = {.schedule = {.lr = 0.02, .min_lr = 0.02, .warmup = 5, .steps = 80},
                              .beta1 = 0.9,
                              .beta2 = 0.95,
                              .eps = 1e-8,
                              .decay = 0.01,
                              .clip = 1};
    struct loss_of l = {.m = tiny(DT_F32)};
    struct optim *opt;
    double before, norm;

    (void)state;
    fill_tokens(l.token, l.target, BATCH * SEQ, 48);
    assert_int_equal(optim_open(l.m, &o, &opt, NULL), 0);
    before = value(&l);
    for (int step = 1; step <= 80; step++) {
        model_begin(l.m);
        model_forward_backward(l.m, l.token, l.target, BATCH, SEQ, 1.0 / (BATCH * SEQ));
        optim_step(opt, step);
    }
    assert_int_equal(optim_norm(opt, &norm, NULL), 0);
    assert_true(norm > 0 && isfinite(norm));
    assert_true(before > 3.5);
    assert_true(value(&l) < 0.2);
    optim_close(&opt);
    model_close(&l.m);
}

static void test_padding_of_the_vocabulary_never_learns(void **state)
{
    struct loss_of l = {.m = tiny(DT_F64)};
    struct model *m = l.m;
    const struct tensor *wte = &m->layout.tensor[0];
    double *g = (double *)(void *)m->grad;

    (void)state;
    fill_tokens(l.token, l.target, BATCH * SEQ, 48);
    model_begin(m);
    model_forward_backward(m, l.token, l.target, BATCH, SEQ, 1);
    assert_int_equal(wte->rows, 128);
    for (int64_t i = wte->used_rows * wte->cols; i < wte->rows * wte->cols; i++) {
        assert_true(g[i] == 0);
    }
    model_close(&l.m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradient_of_gpt2),
        cmocka_unit_test(test_gradient_of_llama),
        cmocka_unit_test(test_recompute_changes_nothing),
        cmocka_unit_test(test_memory_is_planned_and_steps_take_none),
        cmocka_unit_test(test_first_loss_is_nearly_uniform),
        cmocka_unit_test(test_accumulation_equals_a_big_batch),
        cmocka_unit_test(test_accumulation_of_16_bits),
        cmocka_unit_test(test_head_in_pieces),
        cmocka_unit_test(test_pieces_of_the_head),
        cmocka_unit_test(test_a_step_forgets_the_last_ones_gradients),
        cmocka_unit_test(test_learning_one_batch_by_heart),
        cmocka_unit_test(test_padding_of_the_vocabulary_never_learns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
