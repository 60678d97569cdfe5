/* trainer bench - how fast steps are, on tokens that are random but valid: whole optimiser steps and the forward pass. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/train/optim.h"
#include "agent/train/verbs.h"
#include "common/os/clock.h"
#include "kernels/philox.h"

enum { WARM_STEPS = 2, FEW_STEPS = 10 };

struct timing {
    double step_ms; /* the median */
    double forward_ms;
};

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int one(struct model *m, struct optim *opt, const int32_t *token, int64_t step, bool learn,
               double *took_ms, struct err *e)
{
    uint64_t begin = clock_now_ns();
    double sum;
    int rc;

    model_begin(m);
    if (learn) {
        model_learn(m, token, token + 1, m->batch, m->seq, 1.0 / (double)(m->batch * m->seq));
        optim_step(opt, step);
    } else {
        model_measure(m, token, token + 1, m->batch, m->seq);
    }
    rc = model_loss(m, &sum, e);
    *took_ms = (double)(clock_now_ns() - begin) / 1e6;
    return rc;
}

static int median(struct model *m, struct optim *opt, const int32_t *token, int64_t steps,
                  bool learn, double *out, struct err *e)
{
    double *took = mem_array((size_t)steps + WARM_STEPS, sizeof *took);
    int rc = 0;

    for (int64_t i = 0; rc == 0 && i < steps + WARM_STEPS; i++) {
        rc = one(m, opt, token, i + 1, learn, &took[i], e);
    }
    qsort(took + WARM_STEPS, (size_t)steps, sizeof *took, ascending);
    *out = took[WARM_STEPS + steps / 2];
    free(took);
    return rc;
}

static void print(const struct options *o, const struct model *m, const struct timing *t)
{
    double tokens = (double)(m->batch * m->seq), rate = tokens / t->step_ms * 1e3;
    /* 6 floating point operations a parameter and token, 12 a pair of attention's (PaLM's count). */
    double flop = 6 * (double)m->layout.parameters +
                  12 * (double)(m->config.layers * m->config.hidden * m->seq);

    if (o->json) {
        printf("{\"device\":\"%s\",\"parameters\":%lld,\"batch\":%lld,\"seq\":%lld,"
               "\"step_ms\":%.4g,\"forward_ms\":%.4g,\"tokens_per_s\":%.6g,\"tflops\":%.4g}\n",
               m->k->device, (long long)m->layout.parameters, (long long)m->batch,
               (long long)m->seq, t->step_ms, t->forward_ms, rate, rate * flop / 1e12);
    } else {
        printf("%s, %.2f M parameters, %lld x %lld tokens\n", m->k->device,
               (double)m->layout.parameters / 1e6, (long long)m->batch, (long long)m->seq);
        printf("step     %10.2f ms  %12.0f tokens/s  %.3f TFLOP/s\n", t->step_ms, rate,
               rate * flop / 1e12);
        printf("forward  %10.2f ms  %12.0f tokens/s\n", t->forward_ms,
               tokens / t->forward_ms * 1e3);
    }
}

/* Token t with a chance proportional to 1 / (t + 1), as words are: uniform ones would spare the embedding its crowds. */
static int32_t zipf(double uniform, int64_t vocab)
{
    int64_t t = (int64_t)exp(uniform * log((double)vocab)) - 1;

    return (int32_t)(t < 0 ? 0 : t < vocab ? t : vocab - 1);
}

static int run(const struct options *o, struct model *m, struct optim *opt, int64_t steps,
               struct err *e)
{
    size_t n = (size_t)(m->batch * m->seq) + 1;
    int32_t *token = mem_array(n, sizeof *token);
    struct timing t;
    int rc;

    for (size_t i = 0; i < n; i++) {
        struct philox r = philox_at((uint64_t)o->seed, 0, i);
        token[i] = zipf(philox_uniform(r.v[0]), m->config.vocab);
    }
    rc = median(m, opt, token, steps, false, &t.forward_ms, e);
    rc = rc != 0 ? rc : median(m, opt, token, steps, true, &t.step_ms, e);
    if (rc == 0) {
        print(o, m, &t);
    }
    free(token);
    return rc;
}

int verb_bench(const struct options *o, struct err *e)
{
    const struct optim_options oo = {.schedule = {.lr = 1e-4, .min_lr = 1e-4, .steps = 1},
                                     .beta1 = 0.9,
                                     .beta2 = 0.95,
                                     .eps = 1e-8,
                                     .clip = 1};
    const struct kops *k = NULL;
    struct model_config c;
    struct model *m = NULL;
    struct optim *opt = NULL;
    int rc = setup_at_least("batch", o->batch, 1, e);

    rc = rc != 0 ? rc : setup_at_least("seq", o->seq, 0, e);
    rc = rc != 0 ? rc : setup_at_least("steps", o->steps, 1, e);
    rc = rc != 0 ? rc : setup_device(o, 0, &k, e);
    rc = rc != 0 ? rc : setup_config(o, &c, e);
    if (rc == 0) {
        const struct setup s = {
            .world = 1, .batch = o->batch, .seq = setup_seq(o, &c), .training = true, .tell = true};
        rc = setup_model(o, &c, k, &s, &m, e);
    }
    rc = rc != 0 ? rc : optim_open(m, &oo, &opt, e);
    rc = rc != 0 ? rc : run(o, m, opt, o->steps < 1000 ? o->steps : FEW_STEPS, e);
    optim_close(&opt);
    model_close(&m);
    return rc;
}
