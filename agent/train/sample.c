/* trainer sample - text from a model of bytes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/train/verbs.h"
#include "kernels/philox.h"

struct choice {
    float logit;
    int32_t token;
};

static int likeliest_first(const void *a, const void *b)
{
    const struct choice *x = a, *y = b;

    if (x->logit != y->logit) {
        return x->logit > y->logit ? -1 : 1;
    }
    return (x->token > y->token) - (x->token < y->token);
}

/* Draws from the softmax of the likeliest k at a temperature; u is uniform in (0, 1). */
static int32_t choose(struct choice *c, int64_t n, int64_t k, double temperature, double u)
{
    double sum = 0, at;

    qsort(c, (size_t)n, sizeof *c, likeliest_first);
    if (temperature <= 0) {
        return c[0].token;
    }
    n = k > 0 && k < n ? k : n;
    for (int64_t i = 0; i < n; i++) {
        sum += exp(((double)c[i].logit - (double)c[0].logit) / temperature);
    }
    at = u * sum;
    for (int64_t i = 0; i < n; i++) {
        at -= exp(((double)c[i].logit - (double)c[0].logit) / temperature);
        if (at < 0) {
            return c[i].token;
        }
    }
    return c[n - 1].token;
}

/* Tokens that the model looks back on: all of them, while its context holds them. */
static int64_t window(const struct options *o, const struct model_config *c)
{
    int64_t all = (int64_t)strlen(o->prompt) + o->tokens;

    return all < c->context ? all : c->context;
}

static int generate(struct model *m, const struct options *o, struct err *e)
{
    int64_t vocab = m->config.vocab, n = 0;
    size_t prompt = strlen(o->prompt);
    int32_t *token = mem_array(prompt + (size_t)o->tokens + 1, sizeof *token);
    float *logits = mem_array((size_t)vocab, sizeof *logits);
    struct choice *c = mem_array((size_t)vocab, sizeof *c);
    int rc = 0;

    for (; n < (int64_t)prompt; n++) {
        token[n] = (uint8_t)o->prompt[n];
    }
    fputs(o->prompt, stdout);
    for (int64_t i = 0; rc == 0 && i < o->tokens; i++, n++) {
        struct philox r = philox_at((uint64_t)o->seed, UINT64_C(0x73616d70) << 32, (uint64_t)i);
        int64_t seen = n < m->seq ? n : m->seq;

        rc = model_next(m, token + n - seen, seen, logits, e);
        for (int64_t v = 0; v < vocab; v++) {
            c[v] = (struct choice){logits[v], (int32_t)v};
        }
        token[n] = choose(c, vocab, o->top_k, o->temperature, philox_uniform(r.v[0]));
        if (rc == 0) {
            putchar(token[n]);
            fflush(stdout);
        }
    }
    if (rc == 0 && (putchar('\n') == EOF || fflush(stdout) == EOF)) {
        rc = err_sys(e, "standard output");
    }
    free(token);
    free(logits);
    free(c);
    return rc;
}

int verb_sample(const struct options *o, struct err *e)
{
    const struct kops *k = NULL;
    struct model *m = NULL;
    struct model_config c;
    int rc;

    if (o->model == NULL) {
        return err_set(e, E_USAGE, "sample needs --model");
    }
    if (o->prompt[0] == '\0') {
        return err_set(e, E_USAGE, "--prompt must hold something to continue");
    }
    rc = setup_at_least("tokens", o->tokens, 0, e);
    rc = rc != 0 ? rc : setup_device(o, 0, &k, e);
    rc = rc != 0 ? rc : setup_config(o, &c, e);
    if (rc == 0 && c.vocab != VOCAB_BYTES) {
        rc =
            err_set(e, E_UNSUPPORTED, "sample knows models of bytes only; this one has %lld tokens",
                    (long long)c.vocab);
    }
    if (rc == 0) {
        const struct setup s = {.world = 1, .batch = 1, .seq = window(o, &c)};
        rc = setup_model(o, &c, k, &s, &m, e);
    }
    rc = rc != 0 ? rc : generate(m, o, e);
    model_close(&m);
    return rc;
}
