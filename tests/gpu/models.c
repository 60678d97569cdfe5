#include "tests/gpu/twins.h"

#include <math.h>
#include <stdio.h>

#include "agent/train/optim.h"

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
        model_forward_backward(m, token, target, BATCH, SEQ, 1.0 / (BATCH * SEQ));
        optim_step(opt, s + 1);
        rc = model_loss(m, &loss[s], e);
    }
    optim_close(&opt);
    model_close(&m);
    return rc;
}

/* With the sentence of what failed. */
static void failed(struct twins *c, int rc, const struct err *e, const char *what)
{
    if (rc != 0 && c->trouble == NULL) {
        snprintf(c->told, sizeof c->told, "%.200s", e->text);
    }
    twins_trouble(c, rc, what);
}

static void train_there(struct twins *c, double loss[STEPS])
{
    struct err e = {0};
    int rc = train(c->k, loss, &e);

    failed(c, rc, &e, "the model on the device");
}

static void check_model(struct twins *c)
{
    double cpu[STEPS] = {0}, cuda[STEPS] = {0};

    twins_trouble(c, train(kops_cpu(), cpu, NULL), "the model on the CPU");
    train_there(c, cuda);
    for (int s = 0; s < STEPS; s++) {
        double off = fabs(cuda[s] - cpu[s]) / fabs(cpu[s]);

        if (!(off <= twins_bound(c->dt)) && c->told[0] == '\0') {
            snprintf(c->told, sizeof c->told, "step %d: a loss of %.8g, wanted %.8g", s + 1,
                     cuda[s], cpu[s]);
        }
        twins_worse(c, off);
    }
}

/* Twice the same: every bit of every loss. */
static void check_repeat(struct twins *c)
{
    double first[STEPS] = {0}, second[STEPS] = {0};

    train_there(c, first);
    train_there(c, second);
    for (int s = 0; s < STEPS; s++) {
        if (!(first[s] == second[s])) {
            snprintf(c->told, sizeof c->told, "by step %d: a loss of %.9g, then %.9g", s + 1,
                     first[s], second[s]);
            c->worst = INFINITY;
        }
    }
}

/* The logits behind each of TOKENS, over a cache or read whole. */
enum { TOKENS = 24, VOCAB = 48 };

static int logits(const struct kops *k, bool caching, float out[TOKENS][VOCAB], struct err *e)
{
    const struct model_options mo = {.dt = DT_F32, .world = 1, .caching = caching};
    int32_t token[TOKENS];
    struct model_config c;
    struct model *m = NULL;
    int rc = config_builtin("tiny-llama", &c, e);

    for (int i = 0; i < TOKENS; i++) {
        token[i] = (i * 7 + i * i) % VOCAB;
    }
    c.init_std = 0.3; /* attention that looks at something */
    rc = rc != 0 ? rc : model_open(&c, k, &mo, &m, e);
    rc = rc != 0 ? rc : model_reserve(m, 1, TOKENS, e);
    rc = rc != 0 ? rc : model_init(m, 1, e);
    for (int i = 0; rc == 0 && i < TOKENS; i++) {
        rc = caching ? model_extend(m, token + i, 1, out[i], e)
                     : model_next(m, token, i + 1, out[i], e);
    }
    model_close(&m);
    return rc;
}

static void check_cache(struct twins *c)
{
    float cpu[TOKENS][VOCAB] = {0}, cuda[TOKENS][VOCAB] = {0};
    double diff = 0, ref = 0;
    struct err e = {0};

    twins_trouble(c, logits(kops_cpu(), false, cpu, NULL), "the model on the CPU");
    failed(c, logits(c->k, true, cuda, &e), &e, "the model on the device");
    for (int i = 0; i < TOKENS * VOCAB; i++) {
        double a = (double)cuda[i / VOCAB][i % VOCAB], b = (double)cpu[i / VOCAB][i % VOCAB];

        diff += (a - b) * (a - b);
        ref += b * b;
    }
    twins_worse(c, sqrt(diff / ref));
}

const struct twin twins_of_models[] = {
    {"20 steps, cpu beside it", check_model, TWIN_F32, 1},
    {"20 steps, bits repeat", check_repeat, TWIN_F32, 1},
    {"tokens over a cache", check_cache, TWIN_F32, 1},
    {0},
};
