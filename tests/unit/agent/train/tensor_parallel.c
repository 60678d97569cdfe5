/* Tensor parallel ranks as threads of one process: losses, gradients and what is learned are those
 * of a rank that has the whole model, but for rounding; with ZeRO beside it too. */
#include "agent/train/tensor_parallel.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/train/optim.h"
#include "agent/train/saver.h"
#include "agent/train/weights.h"
#include "agent/train/zero.h"
#include "common/os/newfile.h"
#include "tests/unit/agent/train/team.h"
#include "tests/unit/kernels/finite.h"

enum { BATCH = 2, SEQ = 8, ROWS = BATCH * SEQ, STEPS = 3 };

/* --- memory that is counted ------------------------------------------------------------------- */

static _Thread_local size_t taken_bytes;

static int counted_alloc(void **out, size_t size_bytes)
{
    taken_bytes += size_bytes;
    return kops_cpu()->mem_alloc(out, size_bytes);
}

/* --- a run ------------------------------------------------------------------------------------ */

struct training {
    struct model_config config;
    enum dtype dt;
    int tp;
    int ranks; /* that have the same part: they divide the samples */
    int zero;
    int64_t passes; /* of each rank, in a step */
    int64_t recompute;
    int64_t steps;
    bool rounds;      /* nothing is learned; the result has working weights in place of masters */
    bool any_order;   /* sums are not ordered, */
    double off;       /* and those of another group of ranks are off by another multiple of this */
    const char *load; /* a checkpoint to begin with; NULL: fresh weights */
    const char *save; /* where to write one at the end; NULL: nowhere */
};

/* Of the Hub's tensors one after another, as f64; NaN where a rank has nothing. */
struct result {
    double *param; /* masters after the steps */
    double *grad;  /* of the first step; NULL where ranks share them out */
    int64_t size;
    double loss, norm;  /* of the first step */
    int64_t read_bytes; /* by the thread, of the checkpoint's model */
};

struct rank_run {
    const struct training *how;
    struct member tp_comm, comm, all;
    pthread_t thread;
    struct result got;
};

static void fill(const struct training *t, int32_t *token, int64_t sample, int add)
{
    for (int i = 0; i < ROWS; i++) {
        token[i] = (int32_t)((i * 37 + i * i + sample * 11 + add) % t->config.vocab);
    }
}

/* Sample numbers go through the ranks' passes in turn, so that one rank with as many passes sees
 * the same. */
static void learn(const struct rank_run *r, struct model *m, int64_t step)
{
    const struct training *t = r->how;
    int64_t all = t->ranks * t->passes;
    int32_t token[ROWS], target[ROWS];

    model_begin(m);
    for (int64_t pass = 0; pass < t->passes; pass++) {
        int64_t sample = step * all + pass * t->ranks + r->comm.base.rank;

        fill(t, token, sample, 0);
        fill(t, target, sample, 5);
        target[3] = -1; /* nothing to predict */
        model_forward_backward(m, token, target, BATCH, SEQ, 1.0 / (double)(ROWS * all));
    }
}

static double element(enum dtype dt, const char *set, int64_t i)
{
    if (dt == DT_BF16) {
        return (double)bf16_widen(((const uint16_t *)(const void *)set)[i]);
    }
    return dt == DT_F64 ? ((const double *)(const void *)set)[i]
                        : (double)((const float *)(const void *)set)[i];
}

/* Where each of the Hub's tensors begins in a result. */
static int64_t place_of(const struct layout *l, int hub)
{
    int64_t at = 0;

    for (int i = 0; i < hub; i++) {
        at += l->hub[i].rows * l->hub[i].cols;
    }
    return at;
}

/* The group's slices from `whole`, which has all of the group. */
static void spread_group(const struct model *m, int group, enum dtype dt, const char *whole,
                         double *out)
{
    const struct layout *l = &m->layout;
    const struct group *g = &l->group[group];

    for (int i = 0; i < l->slices; i++) {
        const struct hub_slice *s = &l->slice[i];
        double *to = out + place_of(l, s->hub);

        if (s->tensor < g->first_tensor || s->tensor >= g->first_tensor + g->tensors) {
            continue;
        }
        for (int64_t r = 0; r < s->rows; r++) {
            for (int64_t c = 0; c < s->cols; c++) {
                to[(s->row0 + r) * l->hub[s->hub].cols + s->col0 + c] =
                    element(dt, whole, s->offset - g->offset + r * s->cols + c);
            }
        }
    }
}

static double *nothing(int64_t n)
{
    double *x = mem_array((size_t)n, sizeof *x);

    for (int64_t i = 0; i < n; i++) {
        x[i] = NAN;
    }
    return x;
}

static void read_results(struct rank_run *r, struct model *m)
{
    r->got.size = m->layout.parameters;
    r->got.param = nothing(r->got.size);
    for (int g = 0; g < m->layout.groups; g++) {
        spread_group(m, g, r->how->rounds ? m->dt : m->accum,
                     r->how->rounds ? m->group_param[g]
                                    : zero_collect(m, m->master, m->master_held, g),
                     r->got.param);
    }
}

static void read_gradients(struct rank_run *r, struct model *m)
{
    r->got.grad = nothing(m->layout.parameters);
    for (int g = 0; g < m->layout.groups; g++) {
        zero_settle(m);
        spread_group(m, g, m->accum, m->group_grad[g], r->got.grad);
    }
}

static void save(struct rank_run *r, struct model *m, struct optim *o)
{
    const struct companions none = {0};
    const struct saver_options so = {
        .out = r->how->save, .comm = &r->all.base, .companions = &none};
    const struct train_state state = {.step = r->how->steps, .dtype = "f32"};
    struct saver_report sum;
    struct saver *s;

    CHECK(saver_open(&so, m, o, &s, NULL) == 0);
    CHECK(saver_save(s, &state, NULL) == 0);
    do {
        sum = saver_tell(s, 10);
        CHECK(comm_allreduce(&r->all.base, m->ks, DT_F64, &sum, 2) == 0);
    } while (saver_settle(s, &sum));
    CHECK(saver_wait(s, NULL) == 0);
    saver_close(&s);
}

/* What this thread has read so far, as the system counts it. */
static int64_t bytes_read(void)
{
    FILE *f = fopen("/proc/thread-self/io", "r");
    long long n = 0;

    CHECK(f != NULL && fscanf(f, "rchar: %lld", &n) == 1);
    CHECK(fclose(f) == 0);
    return n;
}

static void begin(struct rank_run *r, struct model *m, struct optim *o)
{
    const struct weights_part param = {"", m->master, m->master_held, m->accum};
    int64_t before = bytes_read();

    if (r->how->load == NULL) {
        CHECK(model_init(m, 42, NULL) == 0);
    } else {
        CHECK(weights_load(m, &param, 1, r->how->load, "model", NULL, NULL) == 0);
        r->got.read_bytes = bytes_read() - before;
        CHECK(checkpoint_load(r->how->load, m, o, NULL) == 0);
    }
    optim_refresh(o, 0);
}

static struct model_options options_of(struct rank_run *r)
{
    const struct training *t = r->how;

    return (struct model_options){.dt = t->dt,
                                  .world = t->ranks,
                                  .rank = r->comm.base.rank,
                                  .comm = &r->comm.base,
                                  .all = &r->all.base,
                                  .tp = t->tp,
                                  .tp_rank = r->tp_comm.base.rank,
                                  .tp_comm = &r->tp_comm.base,
                                  .zero = t->zero,
                                  .ordered = !t->any_order,
                                  .passes = t->passes,
                                  .training = true,
                                  .recompute = t->recompute};
}

static void *run_rank(void *arg)
{
    struct rank_run *r = arg;
    const struct training *t = r->how;
    double lr = t->rounds ? 0 : 0.01;
    const struct optim_options oo = {.schedule = {.lr = lr, .min_lr = lr / 10, .steps = STEPS},
                                     .beta1 = 0.9,
                                     .beta2 = 0.95,
                                     .eps = 1e-8,
                                     .decay = 0.1,
                                     .clip = 0.5,
                                     .seed = 3};
    const struct model_options mo = options_of(r);
    struct model_memory plan;
    struct kops k = *kops_cpu();
    struct model *m;
    struct optim *o;

    k.mem_alloc = counted_alloc;
    taken_bytes = 0;
    CHECK(model_open(&t->config, &k, &mo, &m, NULL) == 0);
    CHECK(model_plan(m, BATCH, SEQ, &plan, NULL) == 0);
    CHECK(model_reserve(m, BATCH, SEQ, NULL) == 0);
    CHECK(optim_open(m, &oo, &o, NULL) == 0);
    CHECK(taken_bytes >= model_memory_total(&plan) &&
          taken_bytes < model_memory_total(&plan) + 64); /* the norm's scalars */
    begin(r, m, o);
    for (int64_t step = 0; step < t->steps; step++) {
        learn(r, m, step);
        if (step == 0) {
            tp_count_once(m, m->loss);
            CHECK(comm_allreduce(&r->all.base, m->ks, DT_F64, m->loss, 1) == 0);
            CHECK(model_loss(m, &r->got.loss, NULL) == 0);
        }
        if (step == 0 && t->zero == 0) {
            read_gradients(r, m);
        }
        optim_step(o, step + 1);
        CHECK(step > 0 || optim_norm(o, &r->got.norm, NULL) == 0);
    }
    if (t->save != NULL) {
        save(r, m, o);
    }
    read_results(r, m);
    CHECK(m->rc == 0);
    optim_close(&o);
    model_close(&m);
    return NULL;
}

/* What one rank has goes into the whole; what several have is the same to the bit. */
static void join(double **whole, double *part, int64_t n)
{
    if (*whole == NULL) {
        *whole = part;
        return;
    }
    for (int64_t i = 0; part != NULL && i < n; i++) {
        if (isnan((*whole)[i])) {
            (*whole)[i] = part[i];
        }
        assert_true(isnan(part[i]) || part[i] == (*whole)[i]);
    }
    free(part);
}

static struct result train(const struct training *t)
{
    struct rank_run run[MOST_RANKS] = {{0}};
    struct team all, tensor[MOST_RANKS], copies[MOST_RANKS];
    int n = t->tp * t->ranks;

    team_init(&all, n);
    for (int i = 0; i < MOST_RANKS; i++) {
        team_init(&tensor[i], t->tp);
        team_init(&copies[i], t->ranks);
    }
    for (int r = 0; r < n; r++) {
        run[r] = (struct rank_run){.how = t,
                                   .tp_comm = member_open(&tensor[r / t->tp], r % t->tp, t->tp),
                                   .comm = member_open(&copies[r % t->tp], r / t->tp, t->ranks),
                                   .all = member_open(&all, r, n)};
        run[r].tp_comm.off = t->off * (r / t->tp);
        run[r].comm.off = t->off * (r % t->tp);
        assert_int_equal(pthread_create(&run[r].thread, NULL, run_rank, &run[r]), 0);
    }
    for (int r = 0; r < n; r++) {
        pthread_join(run[r].thread, NULL);
        member_close(&run[r].tp_comm);
        member_close(&run[r].comm);
        member_close(&run[r].all);
        if (r > 0) {
            join(&run[0].got.param, run[r].got.param, run[0].got.size);
            join(&run[0].got.grad, run[r].got.grad, run[0].got.size);
            run[0].got.read_bytes += run[r].got.read_bytes;
            assert_true(run[0].got.loss == run[r].got.loss && run[0].got.norm == run[r].got.norm);
        }
    }
    team_fini(&all);
    for (int i = 0; i < MOST_RANKS; i++) {
        team_fini(&tensor[i]);
        team_fini(&copies[i]);
    }
    return run[0].got;
}

static void result_free(struct result *r)
{
    free(r->param);
    free(r->grad);
}

/* --- comparing -------------------------------------------------------------------------------- */

/* Relative to the largest number: gradients of single elements may cancel out. */
static void expect_near(const double *want, const double *got, int64_t n, double tolerance)
{
    double most = 0;

    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs(want[i]));
    }
    for (int64_t i = 0; i < n; i++) {
        assert_true(fabs(want[i] - got[i]) <= tolerance * most);
    }
}

static void expect_as_one(struct training t, double tolerance)
{
    struct training one = t;
    struct result want, got;

    one.passes = t.ranks * t.passes;
    one.tp = one.ranks = 1;
    one.zero = 0;
    want = train(&one);
    got = train(&t);
    assert_int_equal(want.size, got.size);
    assert_true(fabs(want.loss - got.loss) <= tolerance * want.loss);
    assert_true(fabs(want.norm - got.norm) <= tolerance * want.norm);
    if (got.grad != NULL) {
        expect_near(want.grad, got.grad, want.size, tolerance);
    }
    expect_near(want.param, got.param, want.size, t.steps == 0 ? 0 : tolerance);
    result_free(&want);
    result_free(&got);
}

static struct model_config shape(const char *name, int64_t kv_heads, int64_t vocab)
{
    struct model_config c;

    assert_int_equal(config_builtin(name, &c, NULL), 0);
    c.kv_heads = kv_heads;
    c.vocab = vocab;
    if (c.norm == NORM_LAYER) {
        c.heads = kv_heads;
        c.head_dim = c.hidden / c.heads;
    }
    return c;
}

static void test_llama_as_one(void **state)
{
    struct training t = {.dt = DT_F64, .ranks = 1, .passes = 1, .steps = STEPS};

    (void)state;
    t.tp = 2;
    t.config = shape("tiny-llama", 2, 48); /* the second rank has no token */
    expect_as_one(t, 1e-12);
    t.config = shape("tiny-llama", 2, 301);
    expect_as_one(t, 1e-12);
    t.config.tied = true;
    t.config.attention_bias = t.config.mlp_bias = true;
    expect_as_one(t, 1e-12);
    t.tp = 4;
    t.config = shape("tiny-llama", 4, 301);
    expect_as_one(t, 1e-12);
    t.recompute = 1;
    t.passes = 3;
    expect_as_one(t, 1e-12);
}

static void test_gpt2_as_one(void **state)
{
    struct training t = {.dt = DT_F64, .ranks = 1, .passes = 2, .steps = STEPS};

    (void)state;
    t.tp = 2;
    t.config = shape("tiny-gpt2", 2, 301);
    expect_as_one(t, 1e-12);
    t.tp = 4;
    t.config = shape("tiny-gpt2", 4, 301);
    expect_as_one(t, 1e-12);
}

/* Rank by rank the values are those of the whole model: nothing depends on how it is cut. */
static void test_fresh_weights_are_the_same_bits(void **state)
{
    (void)state;
    for (int tp = 2; tp <= 4; tp += 2) {
        struct training t = {.dt = DT_F32, .ranks = 1, .passes = 1, .tp = tp};

        t.config = shape("tiny-llama", 4, 301);
        expect_as_one(t, 0);
        t.config = shape("tiny-gpt2", 4, 301);
        expect_as_one(t, 0);
    }
}

static void test_beside_every_stage(void **state)
{
    (void)state;
    for (int zero = 0; zero < ZERO_STAGES; zero++) {
        struct training t = {.dt = DT_F64,
                             .tp = 2,
                             .ranks = 2,
                             .zero = zero,
                             .passes = 1 + zero % 2,
                             .recompute = zero == 3 ? 1 : 0,
                             .steps = STEPS};

        t.config = shape("tiny-llama", 2, 301);
        expect_as_one(t, 1e-12);
        t.config = shape("tiny-gpt2", 2, 130);
        expect_as_one(t, 1e-12);
    }
}

/* NCCL may add in another order in each group of ranks. Copies of what is not cut stay the same
 * bits: train() compares them. */
static void test_copies_are_the_same_whatever_a_group_adds_up_to(void **state)
{
    (void)state;
    for (int zero = 0; zero < ZERO_STAGES; zero++) {
        for (int ranks = 1; ranks <= 2; ranks++) {
            struct training t = {.dt = DT_F32,
                                 .tp = 2,
                                 .ranks = ranks,
                                 .zero = ranks > 1 ? zero : 0,
                                 .passes = 2,
                                 .steps = STEPS,
                                 .any_order = true,
                                 .off = 1e-4};
            struct result got;

            t.config = shape(zero % 2 == 0 ? "tiny-llama" : "tiny-gpt2", 2, 301);
            got = train(&t);
            assert_true(got.loss > 0);
            result_free(&got);
        }
    }
}

/* --- checkpoints ------------------------------------------------------------------------------ */

static int64_t expect_same_file(const char *a, const char *b, const char *name)
{
    struct buf one = BUF_INIT(1 << 24), two = BUF_INIT(1 << 24);
    char path[PATH_MAX];
    int64_t n;

    snprintf(path, sizeof path, "%s/%s", a, name);
    assert_int_equal(buf_read_file(&one, path, NULL), 0);
    snprintf(path, sizeof path, "%s/%s", b, name);
    assert_int_equal(buf_read_file(&two, path, NULL), 0);
    assert_int_equal(one.n, two.n);
    assert_memory_equal(one.p, two.p, one.n);
    n = (int64_t)one.n;
    buf_free(&one);
    buf_free(&two);
    return n;
}

/* A folder with what one rank makes of a checkpoint: whole tensors. */
static void save_whole(struct training t, const char *load, const char *out)
{
    struct training alone = {.config = t.config,
                             .dt = DT_F32,
                             .tp = 1,
                             .ranks = 1,
                             .passes = 1,
                             .load = load,
                             .save = out};
    struct result r;

    assert_int_equal(dir_make(out, 0755, NULL), 0);
    r = train(&alone);
    result_free(&r);
}

/* Saved by ranks that cut a model in one way, loaded by others, saved again: every tensor's bytes
 * are the same. No rank reads what is another's of the model: all together no more than the files
 * have, but for copies and headers. */
static void expect_any_cut_goes_on(struct training t, const char *dir)
{
    static const struct {
        int tp, ranks, zero;
        enum dtype dt;
    } next[] = {{1, 1, 0, DT_F32}, {2, 1, 0, DT_F32}, {4, 1, 0, DT_BF16}, {2, 2, 3, DT_F32}};
    char first[128], load[160], other[160], again[192], whole[160], whole_again[192];
    struct result r;

    snprintf(first, sizeof first, "%s/%s-%d", dir, config_family(&t.config), t.tp);
    assert_int_equal(dir_make(first, 0755, NULL), 0);
    t.save = first;
    r = train(&t);
    result_free(&r);
    snprintf(load, sizeof load, "%s/checkpoint-%d", first, STEPS);
    snprintf(other, sizeof other, "%s/whole", first);
    save_whole(t, load, other);
    snprintf(whole, sizeof whole, "%s/whole/checkpoint-0", first);
    for (size_t i = 0; i < ARRAY_LEN(next); i++) {
        struct training then = {.config = t.config,
                                .dt = next[i].dt,
                                .tp = next[i].tp,
                                .ranks = next[i].ranks,
                                .zero = next[i].zero,
                                .passes = 1,
                                .load = load,
                                .save = other};
        int64_t bytes;

        snprintf(other, sizeof other, "%s/then-%zu", first, i);
        assert_int_equal(dir_make(other, 0755, NULL), 0);
        r = train(&then);
        snprintf(again, sizeof again, "%s/checkpoint-0", other);
        bytes = expect_same_file(load, again, "model.safetensors");
        snprintf(other, sizeof other, "%s/whole-%zu", first, i);
        save_whole(t, again, other);
        snprintf(whole_again, sizeof whole_again, "%s/checkpoint-0", other);
        (void)expect_same_file(whole, whole_again, "model.safetensors");
        (void)expect_same_file(whole, whole_again, "optimizer.safetensors");
        assert_true(r.read_bytes >= bytes / 10 * 9 && r.read_bytes < bytes / 10 * 13);
        result_free(&r);
    }
}

static void test_checkpoints_know_no_cut(void **state)
{
    struct training t = {.dt = DT_F32, .passes = 1, .steps = STEPS};
    char dir[] = "/tmp/tensor-parallel-XXXXXX";

    (void)state;
    assert_non_null(mkdtemp(dir));
    for (t.tp = 1; t.tp <= 4; t.tp *= 2) {
        t.ranks = t.tp == 2 ? 2 : 1;
        t.zero = t.ranks - 1;
        t.config = shape("tiny-llama", 4, 301);
        expect_any_cut_goes_on(t, dir);
        t.config = shape("tiny-gpt2", 4, 301);
        expect_any_cut_goes_on(t, dir);
    }
    assert_int_equal(dir_remove_tree(dir, NULL), 0);
}

/* Working weights are rounded by the number of an element in the whole model, not by who has it. */
static void test_rounding_knows_no_cut(void **state)
{
    static const char *const shapes[] = {"tiny-llama", "tiny-gpt2"};

    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(shapes); i++) {
        struct training t = {.dt = DT_BF16,
                             .tp = 1,
                             .ranks = 1 + (int)i / 2,
                             .zero = (int)i / 2,
                             .passes = 1,
                             .steps = 1,
                             .rounds = true,
                             .config = shape(shapes[i % 2], 2, 301)};
        struct result want = train(&t), got;

        t.tp = 2;
        got = train(&t);
        expect_near(want.param, got.param, want.size, 0);
        result_free(&want);
        result_free(&got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fresh_weights_are_the_same_bits),
        cmocka_unit_test(test_llama_as_one),
        cmocka_unit_test(test_gpt2_as_one),
        cmocka_unit_test(test_beside_every_stage),
        cmocka_unit_test(test_copies_are_the_same_whatever_a_group_adds_up_to),
        cmocka_unit_test(test_checkpoints_know_no_cut),
        cmocka_unit_test(test_rounding_knows_no_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
