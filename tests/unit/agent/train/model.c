#include "agent/train/model.h"

#include "agent/train/optim.h"
#include "tests/unit/kernels/finite.h"

enum { BATCH = 3, SEQ = 7 };

static struct model *tiny(enum dtype dt)
{
    struct model_config c;
    struct model *m;
    struct err e;

    assert_int_equal(config_builtin("tiny-gpt2", &c, &e), 0);
    assert_int_equal(model_open(&c, kops_cpu(), dt, 1, true, &m, &e), 0);
    assert_int_equal(model_init(m, 42, &e), 0);
    assert_int_equal(model_reserve(m, BATCH, SEQ, &e), 0);
    return m;
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
static void test_whole_gradient(void **state)
{
    struct loss_of l = {.m = tiny(DT_F64)};
    struct model *m = l.m;
    double *p = (double *)(void *)m->param, *g = mem_array((size_t)m->layout.size, sizeof *g);

    (void)state;
    fill_tokens(l.token, l.target, BATCH * SEQ, 48);
    /* GPT-2's small start makes flat attention; larger weights exercise every term. */
    for (int64_t i = 0; i < m->layout.size; i++) {
        p[i] += 0.3 * finite_random();
    }
    model_begin(m);
    model_learn(m, l.token, l.target, BATCH, SEQ, 1.0 / (BATCH * SEQ));
    memcpy(g, m->grad, model_bytes(m, m->layout.size));
    for (int i = 0; i < m->layout.tensors; i++) {
        const struct tensor *t = &m->layout.tensor[i];
        int64_t n = t->rows * t->cols, step = n / 25 + 1;
        char name[32];

        snprintf(name, sizeof name, "tensor %d of kind %d", i, (int)t->kind);

        for (int64_t j = 0; j < n; j += step) {
            finite_check(name, value, &l, p + t->offset + j, g + t->offset + j, 0, 1);
        }
    }
    free(g);
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
        model_learn(m, l.token + b * SEQ, l.target + b * SEQ, 1, SEQ, 1.0 / (BATCH * SEQ));
    }
    assert_int_equal(model_loss(m, &loss[0], NULL), 0);
    memcpy(one, m->grad, n * sizeof *one);
    model_begin(m);
    model_learn(m, l.token, l.target, BATCH, SEQ, 1.0 / (BATCH * SEQ));
    assert_int_equal(model_loss(m, &loss[1], NULL), 0);
    assert_true(fabs(loss[0] - loss[1]) <= 1e-12 * fabs(loss[1]));
    for (size_t i = 0; i < n; i++) {
        assert_true(fabs(one[i] - big[i]) <= 1e-14);
    }
    free(one);
    model_close(&l.m);
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
    model_learn(m, l.token, l.target, BATCH, SEQ, 1);
    memcpy(whole, m->grad, n * sizeof *whole);
    m->head_rows = 4;
    model_begin(m);
    model_learn(m, l.token, l.target, BATCH, SEQ, 1);
    for (size_t i = 0; i < n; i++) {
        assert_true(fabs(whole[i] - got[i]) <= 1e-12);
    }
    free(whole);
    model_close(&l.m);
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
        model_learn(l.m, l.token, l.target, BATCH, SEQ, 1.0 / (BATCH * SEQ));
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
    model_learn(m, l.token, l.target, BATCH, SEQ, 1);
    assert_int_equal(wte->rows, 128);
    for (int64_t i = wte->used_rows * wte->cols; i < wte->rows * wte->cols; i++) {
        assert_true(g[i] == 0);
    }
    model_close(&l.m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_gradient),
        cmocka_unit_test(test_first_loss_is_nearly_uniform),
        cmocka_unit_test(test_accumulation_equals_a_big_batch),
        cmocka_unit_test(test_head_in_pieces),
        cmocka_unit_test(test_learning_one_batch_by_heart),
        cmocka_unit_test(test_padding_of_the_vocabulary_never_learns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
