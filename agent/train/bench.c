/* trainer bench - how fast the operations of a model's step are, each alone, and then whole steps,
 * on tokens that are random but valid. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/train/flops.h"
#include "agent/train/optim.h"
#include "agent/train/trial.h"
#include "agent/train/verbs.h"
#include "agent/train/workload.h"
#include "common/os/clock.h"

enum { WARM_STEPS = 2, FEW_STEPS = 10, LEAST_NS = 100000000 };

struct timing {
    double step_ms; /* the median */
    double forward_ms;
};

/* --- which tables ----------------------------------------------------------------------------- */

enum { GEMM = 1, COPY = 2, ATTENTION = 4, MEMORY = 8, STEPS = 16, ALL = 31 };

static const struct section {
    const char *name;
    unsigned bit;
    int (*run)(struct workload *w, struct err *e);
} sections[] = {
    {"gemm", GEMM, workload_gemm},
    {"copy", COPY, workload_copy},
    {"attention", ATTENTION, workload_attention},
    {"memory", MEMORY, workload_memory},
    {"steps", STEPS, NULL},
};

static int parse_only(const char *text, unsigned *out, struct err *e)
{
    struct slice rest = slice_str(text);

    *out = 0;
    while (rest.n > 0) {
        struct slice name = slice_cut(&rest, ',');
        unsigned bit = slice_eq(name, SLICE("all")) ? ALL : 0;

        for (size_t i = 0; i < ARRAY_LEN(sections); i++) {
            bit |= slice_eqs(name, sections[i].name) ? sections[i].bit : 0;
        }
        if (bit == 0) {
            return err_set(e, E_USAGE, "--only " SLICE_FMT ": gemm, copy, attention, memory, steps",
                           (int)(name.n > 40 ? 40 : name.n), name.p);
        }
        *out |= bit;
    }
    *out |= (*out & MEMORY) != 0 ? COPY : 0; /* their measure */
    return *out != 0
               ? 0
               : err_set(e, E_USAGE,
                         "--only names no table; give gemm, copy, attention, memory or steps");
}

/* --- whole steps ------------------------------------------------------------------------------ */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int time_one_step(struct model *m, struct optim *opt, const int32_t *token, int64_t step,
                         bool for_training, double *took_ms, struct err *e)
{
    uint64_t begin = clock_now_ns();
    double sum;
    int rc;

    model_begin(m);
    if (for_training) {
        model_forward_backward(m, token, token + 1, m->batch, m->seq,
                               1.0 / (double)(m->batch * m->seq));
        optim_step(opt, step);
    } else {
        model_measure(m, token, token + 1, m->batch, m->seq);
    }
    rc = model_loss(m, &sum, e);
    *took_ms = (double)(clock_now_ns() - begin) / 1e6;
    return rc;
}

static int median(struct model *m, struct optim *opt, const int32_t *token, int64_t steps,
                  bool for_training, double *out, struct err *e)
{
    double *took = mem_array((size_t)steps + WARM_STEPS, sizeof *took);
    int rc = 0;

    for (int64_t i = 0; rc == 0 && i < steps + WARM_STEPS; i++) {
        rc = time_one_step(m, opt, token, i + 1, for_training, &took[i], e);
    }
    qsort(took + WARM_STEPS, (size_t)steps, sizeof *took, ascending);
    *out = took[WARM_STEPS + steps / 2];
    free(took);
    return rc;
}

static int time_steps(const struct options *o, struct model *m, struct optim *opt, int64_t steps,
                      struct timing *out, struct err *e)
{
    size_t n = (size_t)(m->batch * m->seq) + 1;
    /* Such memory as a run's loader has: a copy from other memory may wait for the device. */
    void *room = NULL;
    int32_t *token;
    int rc = m->k->host_alloc(&room, n * sizeof *token);

    if (rc != 0) {
        return err_set(e, rc, "not enough host memory for the tokens of a step");
    }
    token = room;
    trial_words(token, n, m->config.vocab, (uint64_t)o->seed);
    rc = median(m, opt, token, steps, false, &out->forward_ms, e);
    rc = rc != 0 ? rc : median(m, opt, token, steps, true, &out->step_ms, e);
    m->k->host_free(room);
    return rc;
}

/* --- the report ------------------------------------------------------------------------------- */

/* What stays the same over all tables. */
struct report {
    const struct options *o;
    const struct kops *k;
    struct model_config config;
    int64_t seq;
    unsigned only;
    struct scores scores;
    char attention_by[sizeof(((struct attention_ready *)0)->by)];
    int64_t parameters;
    double token_flops;
    struct timing t;
};

static void print_steps(const struct report *r)
{
    double tokens = (double)(r->o->batch * r->seq), rate = tokens / r->t.step_ms * 1e3;

    printf("%sstep     %10.2f ms  %12.0f tokens/s  %.3f TFLOP/s\n", r->scores.n > 0 ? "\n" : "",
           r->t.step_ms, rate, rate * r->token_flops / 1e12);
    printf("forward  %10.2f ms  %12.0f tokens/s\n", r->t.forward_ms,
           tokens / r->t.forward_ms * 1e3);
}

static void print_bench_json(const struct report *r)
{
    double tokens = (double)(r->o->batch * r->seq);
    struct buf text = BUF_INIT(64 << 10);

    jwrite_open(&text, NULL, '{');
    jwrite_str(&text, "device", r->k->device);
    jwrite_str(&text, "dtype", r->o->dtype);
    jwrite_double(&text, "parameters", (double)r->parameters);
    jwrite_double(&text, "batch", (double)r->o->batch);
    jwrite_double(&text, "seq", (double)r->seq);
    if (r->attention_by[0] != '\0') {
        jwrite_str(&text, "attention_by", r->attention_by);
    }
    if ((r->only & STEPS) != 0) {
        double rate = tokens / r->t.step_ms * 1e3;

        jwrite_double(&text, "step_ms", r->t.step_ms);
        jwrite_double(&text, "forward_ms", r->t.forward_ms);
        jwrite_double(&text, "tokens_per_s", rate);
        jwrite_double(&text, "tflops", rate * r->token_flops / 1e12);
    }
    scores_json(&r->scores, &text);
    jwrite_close(&text, '}');
    printf("%s\n", buf_cstr(&text));
    buf_free(&text);
}

/* --- the verb --------------------------------------------------------------------------------- */

/* The operations, beside a model that takes no memory: theirs is given back before whole steps take
 * it. */
static int run_tables(struct report *r, struct err *e)
{
    struct workload w = {
        .batch = r->o->batch, .seq = r->seq, .least_ns = LEAST_NS, .scores = &r->scores};
    const struct setup s = {.world = 1, .training = true};
    struct model_memory unused;
    int rc = setup_open(r->o, &r->config, r->k, &s, &w.m, e);

    rc = rc != 0 ? rc : model_plan(w.m, w.batch, w.seq, &unused, e); /* refuses what cannot be */
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(sections); i++) {
        if ((r->only & sections[i].bit) != 0 && sections[i].run != NULL) {
            rc = sections[i].run(&w, e);
        }
    }
    memcpy(r->attention_by, w.attention_by, sizeof r->attention_by);
    model_close(&w.m);
    return rc;
}

static int run_steps(struct report *r, struct err *e)
{
    const struct optim_options oo = {.schedule = {.lr = 1e-4, .min_lr = 1e-4, .steps = 1},
                                     .beta1 = 0.9,
                                     .beta2 = 0.95,
                                     .eps = 1e-8,
                                     .clip = 1};
    const struct setup s = {
        .world = 1, .batch = r->o->batch, .seq = r->seq, .training = true, .tell = true};
    int64_t steps = r->o->steps < 1000 ? r->o->steps : FEW_STEPS;
    struct model *m = NULL;
    struct optim *opt = NULL;
    int rc = setup_model(r->o, &r->config, r->k, &s, &m, e);

    rc = rc != 0 ? rc : optim_open(m, &oo, &opt, e);
    rc = rc != 0 ? rc : time_steps(r->o, m, opt, steps, &r->t, e);
    if (rc == 0) {
        memcpy(r->attention_by, m->attention.by, sizeof r->attention_by);
    }
    optim_close(&opt);
    model_close(&m);
    return rc;
}

static void prepare_bench_report(struct report *r)
{
    struct layout l;

    r->seq = setup_seq(r->o, &r->config);
    layout_init(&l, &r->config, 1);
    r->parameters = l.parameters;
    r->token_flops = flops_of_token(&r->config, &l, r->seq);
    layout_fini(&l);
    r->scores.quiet = r->o->json;
    if (!r->o->json) {
        printf("%s, %s, %.2f M parameters, %lld x %lld tokens\n\n", r->k->device, r->o->dtype,
               (double)r->parameters / 1e6, (long long)r->o->batch, (long long)r->seq);
    }
}

int verb_bench(struct options *o, struct err *e)
{
    struct report r = {.o = o};
    int rc = setup_at_least("batch", o->batch, 1, e);

    if (o->bench_comm) {
        return bench_comm(o, e);
    }
    rc = rc != 0 ? rc : setup_at_least("seq", o->seq, 0, e);
    rc = rc != 0 ? rc : setup_at_least("steps", o->steps, 1, e);
    rc = rc != 0 ? rc : parse_only(o->only, &r.only, e);
    rc = rc != 0 ? rc : setup_device(o, 0, &r.k, e);
    rc = rc != 0 ? rc : setup_config(o, &r.config, e);
    if (rc != 0) {
        return rc;
    }
    setup_dtype(o, r.k, "", true);
    prepare_bench_report(&r);
    rc = (r.only & ~(unsigned)STEPS) != 0 ? run_tables(&r, e) : 0;
    if (rc == 0 && (r.only & STEPS) != 0) {
        rc = run_steps(&r, e);
        if (rc == 0 && !o->json) {
            print_steps(&r);
        }
    }
    if (rc == 0 && !o->json) {
        printf("\nattention kernel: %s\n",
               r.attention_by[0] != '\0' ? r.attention_by : "(not used)");
    }
    if (rc == 0 && o->json) {
        print_bench_json(&r);
    }
    return rc;
}
