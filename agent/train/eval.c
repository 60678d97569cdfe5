/* trainer eval - the mean loss over consecutive windows. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/train/measure.h"
#include "agent/train/verbs.h"

/* JSON has no NaN and no infinity. */
static void print_number(const char *key, double x)
{
    if (isfinite(x)) {
        printf("\"%s\":%.9g,", key, x);
    } else {
        printf("\"%s\":null,", key);
    }
}

static void print(const struct options *o, const struct measured *r)
{
    if (o->json) {
        printf("{");
        print_number("loss", r->loss);
        print_number("perplexity", exp(r->loss));
        printf("\"tokens\":%llu,\"windows\":%llu}\n", (unsigned long long)r->tokens,
               (unsigned long long)r->windows);
    } else {
        printf("loss %.4f nats per token, perplexity %.3f, over %llu tokens\n", r->loss,
               exp(r->loss), (unsigned long long)r->tokens);
    }
}

int verb_eval(struct options *o, struct err *e)
{
    const struct kops *k = NULL;
    struct model *m = NULL;
    struct data *d = NULL;
    struct model_config c;
    struct measured result;
    struct setup s = {.world = 1, .batch = o->batch};
    int rc;

    if (o->data == NULL || o->model == NULL) {
        return err_set(e, E_USAGE, "eval needs --model and --data");
    }
    rc = setup_at_least("batch", o->batch, 1, e);
    rc = rc != 0 ? rc : setup_at_least("seq", o->seq, 0, e);
    rc = rc != 0 ? rc : setup_at_least("batches", o->batches, 0, e);
    rc = rc != 0 ? rc : setup_device(o, 0, &k, e);
    rc = rc != 0 ? rc : setup_config(o, &c, e);
    if (rc != 0) {
        return rc;
    }
    setup_dtype(o, k, "", true);
    s.seq = setup_seq(o, &c);
    rc = data_open(o->data, s.seq, 0, &d, e);
    rc = rc != 0 ? rc : setup_same_tokenizer(o->model, d, e);
    rc = rc != 0 ? rc : setup_model(o, &c, k, &s, &m, e);
    rc = rc != 0 ? rc : measure(m, d, o->batch, o->batches, NULL, &result, e);
    if (rc == 0) {
        print(o, &result);
    }
    model_close(&m);
    data_close(&d);
    return rc;
}
