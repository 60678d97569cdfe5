/* trainer sample - a text, continued by a model. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/train/tokenizer.h"
#include "agent/train/verbs.h"
#include "common/codec/utf8.h"
#include "kernels/philox.h"

struct choice {
    float logit;
    int32_t token;
};

struct sampling {
    const struct options *o;
    struct tokenizer *tokenizer;
    int32_t *token; /* the prompt's, then those drawn: n so far */
    int64_t n;
    struct buf text;    /* drawn and not yet printed: the beginning of a character */
    struct buf printed; /* scratch */
};

/* --- a choice ------------------------------------------------------------------------------------------------------ */

static int likeliest_first(const void *a, const void *b)
{
    const struct choice *x = a, *y = b;

    if (x->logit != y->logit) {
        return x->logit > y->logit ? -1 : 1;
    }
    return (x->token > y->token) - (x->token < y->token);
}

/* Makes c[at..n) a heap again, the least likely on top, where only c[at] may be wrong. */
static void sink(struct choice *c, int64_t n, int64_t at)
{
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        struct choice swap = c[at];

        child += child + 1 < n && likeliest_first(&c[child], &c[child + 1]) < 0;
        if (likeliest_first(&c[at], &c[child]) >= 0) {
            return;
        }
        c[at] = c[child];
        c[child] = swap;
    }
}

/* The k likeliest to the front, in their order: a vocabulary is long, k is short. */
static void choose_likeliest(struct choice *c, int64_t n, int64_t k)
{
    for (int64_t i = k / 2; i-- > 0;) {
        sink(c, k, i);
    }
    for (int64_t i = k; i < n; i++) {
        if (likeliest_first(&c[i], &c[0]) < 0) {
            c[0] = c[i];
            sink(c, k, 0);
        }
    }
    qsort(c, (size_t)k, sizeof *c, likeliest_first);
}

/* Draws from the softmax of the likeliest k at a temperature; u is uniform in (0, 1). */
static int32_t choose(struct choice *c, int64_t n, int64_t k, double temperature, double u)
{
    double sum = 0, at;

    k = temperature <= 0 ? 1 : k > 0 && k < n ? k : n;
    choose_likeliest(c, n, k);
    if (k == 1) {
        return c[0].token;
    }
    for (int64_t i = 0; i < k; i++) {
        sum += exp(((double)c[i].logit - (double)c[0].logit) / temperature);
    }
    at = u * sum;
    for (int64_t i = 0; i < k; i++) {
        at -= exp(((double)c[i].logit - (double)c[0].logit) / temperature);
        if (at < 0) {
            return c[i].token;
        }
    }
    return c[k - 1].token;
}

/* --- text ---------------------------------------------------------------------------------------------------------- */

/* The tokenizer of --tokenizer, else the model's own; a model of 256 tokens without one speaks bytes. */
static int open_tokenizer(struct sampling *s, const struct model_config *c, struct err *e)
{
    const char *path = s->o->tokenizer != NULL ? s->o->tokenizer : s->o->model;
    int rc = tokenizer_open(path, &s->tokenizer, e);

    if (rc == E_NOTFOUND && s->o->tokenizer == NULL && c->vocab == VOCAB_BYTES) {
        rc = tokenizer_open(NULL, &s->tokenizer, e);
    }
    if (rc == 0 && tokenizer_vocab(s->tokenizer) > (uint64_t)c->vocab) {
        rc = err_set(e, E_INVALID, "the tokenizer has %u tokens, the model only %lld",
                     tokenizer_vocab(s->tokenizer), (long long)c->vocab);
    }
    return rc;
}

static int encode_prompt(struct sampling *s, struct err *e)
{
    struct buf clean = BUF_INIT(SIZE_MAX / 8);
    struct encoder *x = encoder_open(s->tokenizer, false);
    const uint32_t *before;
    size_t used, n = 0, m;
    int rc;

    utf8_clean(slice_str(s->o->prompt), false, &clean, &used);
    before = tokenizer_before(s->tokenizer, &n);
    s->token = mem_array(n + clean.n + (size_t)s->o->tokens, sizeof *s->token);
    for (size_t i = 0; i < n; i++) {
        s->token[i] = (int32_t)before[i];
    }
    /* Ids are below 2^31, so int32_t holds what uint32_t does. */
    rc = encoder_add(x, buf_slice(&clean), (uint32_t *)s->token + n, &m, e);
    s->n = (int64_t)(n + m);
    encoder_close(&x);
    buf_free(&clean);
    return rc;
}

/* Whole characters are printed as soon as they are there; a token may hold a part of one. */
static int print_token(struct sampling *s, uint32_t token, bool more, struct err *e)
{
    size_t used;

    if (more) {
        buf_adds(&s->text, tokenizer_text(s->tokenizer, token));
    }
    buf_clear(&s->printed);
    (void)utf8_clean(buf_slice(&s->text), more, &s->printed, &used);
    buf_drop(&s->text, used);
    if (!more) {
        buf_byte(&s->printed, '\n');
    }
    return fwrite(s->printed.p, 1, s->printed.n, stdout) == s->printed.n && fflush(stdout) == 0
               ? 0
               : err_sys(e, "standard output");
}

/* --- the verb ------------------------------------------------------------------------------------------------------ */

static int generate(struct sampling *s, struct model *m, struct err *e)
{
    const struct options *o = s->o;
    int64_t end_of_text = tokenizer_end_of_text(s->tokenizer), known = 0;
    float *logits = mem_array((size_t)m->config.vocab, sizeof *logits);
    struct choice *c = mem_array((size_t)m->config.vocab, sizeof *c);
    int rc = 0;

    fputs(o->prompt, stdout);
    for (int64_t i = 0; rc == 0 && i < o->tokens; i++) {
        struct philox r = philox_at((uint64_t)o->seed, UINT64_C(0x73616d70) << 32, (uint64_t)i);
        int64_t seen = s->n < m->seq ? s->n : m->seq;

        rc = model_next(m, s->token + s->n - seen, seen, logits, e);
        if (rc != 0) {
            break;
        }
        known = 0;
        for (uint32_t v = 0; v < tokenizer_vocab(s->tokenizer); v++) {
            if (tokenizer_text(s->tokenizer, v).p != NULL) {
                c[known++] = (struct choice){logits[v], (int32_t)v};
            }
        }
        s->token[s->n] = choose(c, known, o->top_k, o->temperature, philox_uniform(r.v[0]));
        if (s->token[s->n] == end_of_text) {
            break;
        }
        rc = print_token(s, (uint32_t)s->token[s->n++], true, e);
    }
    rc = rc != 0 ? rc : print_token(s, 0, false, e);
    free(logits);
    free(c);
    return rc;
}

static int open_and_generate(struct sampling *s, struct err *e)
{
    const struct options *o = s->o;
    struct setup setup = {.world = 1, .batch = 1};
    const struct kops *k = NULL;
    struct model *m = NULL;
    struct model_config c;
    int rc = setup_device(o, 0, &k, e);

    rc = rc != 0 ? rc : setup_config(o, &c, e);
    rc = rc != 0 ? rc : open_tokenizer(s, &c, e);
    rc = rc != 0 ? rc : encode_prompt(s, e);
    if (rc == 0) {
        int64_t all = s->n + o->tokens; /* the model looks back on, while its context holds them */

        setup.seq = all < c.context ? all : c.context;
        rc = setup_model(o, &c, k, &setup, &m, e);
    }
    rc = rc != 0 ? rc : generate(s, m, e);
    model_close(&m);
    return rc;
}

int verb_sample(const struct options *o, struct err *e)
{
    struct sampling s = {.o = o, .text = BUF_INIT(1 << 20), .printed = BUF_INIT(4 << 20)};
    int rc;

    if (o->model == NULL) {
        return err_set(e, E_USAGE, "sample needs --model");
    }
    if (o->prompt[0] == '\0') {
        return err_set(e, E_USAGE, "--prompt must hold something to continue");
    }
    rc = setup_at_least("tokens", o->tokens, 0, e);
    rc = rc != 0 ? rc : open_and_generate(&s, e);
    tokenizer_close(&s.tokenizer);
    free(s.token);
    buf_free(&s.text);
    buf_free(&s.printed);
    return rc;
}
