/* trainer sample - a text, continued by a model. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/train/choice.h"
#include "agent/train/tokenizer.h"
#include "agent/train/verbs.h"
#include "common/codec/utf8.h"
#include "kernels/philox.h"

enum { MAX_TOKENS = 1 << 26 };

struct sampling {
    struct options *o;
    struct tokenizer *tokenizer;
    int32_t *token; /* the prompt's, then those drawn: n so far */
    int64_t n;
    int64_t drawn;
    struct buf text;    /* drawn and not yet printed: the beginning of a character */
    struct buf printed; /* scratch */
};

/* --- text ------------------------------------------------------------------------------------- */

/* The tokenizer of --tokenizer, else the model's own; a model of 256 tokens without one speaks
 * bytes. */
static int open_tokenizer(struct sampling *s, const struct model_config *c, struct err *e)
{
    const char *path = s->o->tokenizer != NULL ? s->o->tokenizer : s->o->model;
    int rc = tokenizer_open(path, &s->tokenizer, e);

    if (rc == E_NOTFOUND && s->o->tokenizer == NULL && c->vocab == VOCAB_BYTES) {
        rc = tokenizer_open(NULL, &s->tokenizer, e);
    }
    if (rc == 0 && tokenizer_vocab(s->tokenizer) > (uint64_t)c->vocab) {
        rc = err_set(e, E_INVALID,
                     "the tokenizer has %u tokens, but the model's vocabulary only %lld",
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

/* --- the verb --------------------------------------------------------------------------------- */

/* A token costs its own position: the keys and values of those before it are kept. When the context
 * is full its newer half is read again, and the text goes on behind that. */
static int next_logits(struct sampling *s, struct model *m, float *logits, struct err *e)
{
    int64_t seen = 1;

    if (m->known == 0) {
        seen = s->n < m->seq ? s->n : m->seq;
    } else if (m->known == m->seq) {
        seen = m->seq > 1 ? m->seq / 2 : 1;
        model_forget(m);
    }
    return model_extend(m, s->token + s->n - seen, seen, logits, e);
}

/* Of the tokens that are text. */
static int choose_next_token(struct sampling *s, const float *logits, struct choice *c,
                             struct err *e)
{
    const struct options *o = s->o;
    const struct choosing how = {o->top_k, o->top_p, o->temperature};
    struct philox r = philox_at((uint64_t)o->seed, UINT64_C(0x73616d70) << 32, (uint64_t)s->drawn);
    int64_t known = 0;

    for (uint32_t v = 0; v < tokenizer_vocab(s->tokenizer); v++) {
        if (tokenizer_text(s->tokenizer, v).p != NULL) {
            c[known++] = (struct choice){logits[v], (int32_t)v};
        }
    }
    if (known == 0) {
        return err_set(e, E_INVALID, "the tokenizer has no tokens");
    }
    s->drawn++;
    return choice_draw(c, known, &how, philox_uniform(r.v[0]), &s->token[s->n], e);
}

/* By the model's own word, or the tokenizer's. */
static bool is_end_token(const struct sampling *s, const struct model_config *c, int64_t token)
{
    bool yes = token == tokenizer_end_of_text(s->tokenizer);

    for (int64_t i = 0; i < c->eos_count; i++) {
        yes = yes || token == c->eos[i];
    }
    return yes;
}

static int generate(struct sampling *s, struct model *m, struct err *e)
{
    float *logits = mem_array((size_t)m->config.vocab, sizeof *logits);
    struct choice *c = mem_array((size_t)m->config.vocab, sizeof *c);
    int rc = 0;

    fputs(s->o->prompt, stdout);
    while (rc == 0 && s->drawn < s->o->tokens) {
        rc = next_logits(s, m, logits, e);
        rc = rc != 0 ? rc : choose_next_token(s, logits, c, e);
        if (rc != 0 || is_end_token(s, &m->config, s->token[s->n])) {
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
    struct options *o = s->o;
    struct setup setup = {.world = 1, .batch = 1, .caching = true};
    const struct kops *k = NULL;
    struct model *m = NULL;
    struct model_config c;
    int rc = setup_device(o, 0, &k, e);

    rc = rc != 0 ? rc : setup_config(o, &c, e);
    rc = rc != 0 ? rc : open_tokenizer(s, &c, e);
    rc = rc != 0 ? rc : encode_prompt(s, e);
    if (rc == 0) {
        int64_t all = s->n + o->tokens;

        setup_dtype(o, k, "", true);
        setup.seq = all < c.context ? all : c.context;
        rc = setup_model(o, &c, k, &setup, &m, e);
    }
    rc = rc != 0 ? rc : generate(s, m, e);
    model_close(&m);
    return rc;
}

static int check_sample_options(const struct options *o, struct err *e)
{
    int rc = setup_at_least("tokens", o->tokens, 0, e);

    rc = rc != 0 ? rc : setup_at_least("top-k", o->top_k, 0, e);
    if (rc == 0 && o->tokens > MAX_TOKENS) {
        rc = err_set(e, E_USAGE, "--tokens %lld is too large; at most %d are supported",
                     (long long)o->tokens, MAX_TOKENS);
    }
    if (rc == 0 && o->temperature < 0) {
        rc = err_set(e, E_USAGE, "--temperature %g is negative; give 0 or more", o->temperature);
    }
    if (rc == 0 && !(o->top_p > 0 && o->top_p <= 1)) {
        rc = err_set(e, E_USAGE, "--top-p %g is out of range; give a number above 0 and at most 1",
                     o->top_p);
    }
    return rc;
}

int verb_sample(struct options *o, struct err *e)
{
    struct sampling s = {.o = o, .text = BUF_INIT(1 << 20), .printed = BUF_INIT(4 << 20)};
    int rc;

    if (o->model == NULL) {
        return err_set(e, E_USAGE, "sample needs --model");
    }
    if (o->prompt[0] == '\0') {
        return err_set(e, E_USAGE, "--prompt must not be empty");
    }
    rc = check_sample_options(o, e);
    rc = rc != 0 ? rc : open_and_generate(&s, e);
    tokenizer_close(&s.tokenizer);
    free(s.token);
    buf_free(&s.text);
    buf_free(&s.printed);
    return rc;
}
