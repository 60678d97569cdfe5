/* Ranks as threads whose gradients are compressed, beside those of ranks that sum them whole. */
#include "agent/train/powersgd.h"

#include "agent/train/optim.h"
#include "agent/train/zero.h"
#include "tests/unit/agent/train/team.h"
#include "tests/unit/kernels/finite.h"

enum { MOST_STEPS = 80, WHOLE = POWERSGD_RANK_MAX };

static _Thread_local size_t taken_bytes;

static int counted_alloc(void **out, size_t size_bytes)
{
    taken_bytes += size_bytes;
    return kops_cpu()->mem_alloc(out, size_bytes);
}

/* Gradients of some steps, of parameters that stay as they are, or a run that learns. */
struct training {
    const char *shape;
    enum dtype dt;
    int ranks;
    int zero;
    bool ordered;
    struct compression compress;
    int64_t seq;
    int64_t passes;
    int64_t steps;
    bool learns;
    /* the step whose gradients are not finite, and which is not taken; 0: none is */
    int64_t broken;
};

struct rank_run {
    const struct training *how;
    struct member comm;
    pthread_t thread;
    struct layout layout;
    double *sum[MOST_STEPS]; /* each step's gradients, whole, of all elements */
    double *left;            /* E at the end, where the gradients of its elements are */
    char *factors;           /* Q at the end */
    size_t factors_bytes;
    double sent_bytes[MOST_STEPS], reported_bytes[2];
    double loss;
    bool memory_as_planned;
    bool counted_as_sent;
};

static void fill(int32_t *token, int64_t n, int64_t sample, int add)
{
    for (int64_t i = 0; i < n; i++) {
        token[i] = (int32_t)((i * 7 + i * i + sample * 11 + add) % 48);
    }
}

static void learn(struct rank_run *r, struct model *m, int64_t step)
{
    const struct training *t = r->how;
    int64_t all = t->ranks * t->passes;
    int32_t token[64], target[64];
    double scale = step == t->broken ? (double)INFINITY : 1.0 / (double)(t->seq * all);

    CHECK(t->seq <= (int64_t)ARRAY_LEN(token));
    model_begin(m);
    powersgd_begin(m, step);
    for (int64_t pass = 0; pass < t->passes; pass++) {
        int64_t sample = (step * all + pass * t->ranks + r->comm.base.rank) % 23;

        fill(token, t->seq, sample, 0);
        fill(target, t->seq, sample, 5);
        model_forward_backward(m, token, target, 1, t->seq, scale);
    }
    zero_settle(m);
}

static double *as_f64(const struct model *m, const char *from, int64_t n)
{
    double *x = mem_array((size_t)n, sizeof *x);

    CHECK(m->k->convert(NULL, DT_F64, x, m->accum, from, n) == 0);
    return x;
}

static bool starts_with(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* Where the layout has the matrix of that Hub name. */
static int64_t offset_of(const struct layout *l, const char *name)
{
    for (int i = 0; i < l->hubs; i++) {
        if (strcmp(l->hub[i].name, name) == 0) {
            return l->tensor[l->hub[i].tensor].offset + l->hub[i].first_row * l->hub[i].cols;
        }
    }
    CHECK(!"a tensor of the layout's");
    return 0;
}

static void read_state(struct rank_run *r, struct model *m)
{
    struct powersgd_tensor t;

    r->left = mem_array((size_t)m->layout.size, sizeof *r->left);
    for (int i = 0; powersgd_tensor(m, i, &t); i++) {
        int64_t n = t.rows * t.cols;

        if (starts_with(t.name, "error.")) {
            double *x = as_f64(m, t.at, n);

            memcpy(r->left + offset_of(&m->layout, t.name + strlen("error.")), x,
                   (size_t)n * sizeof *x);
            free(x);
        } else {
            size_t bytes = model_accum_bytes(m, n);

            r->factors = realloc(r->factors, r->factors_bytes + bytes);
            memcpy(r->factors + r->factors_bytes, t.at, bytes);
            r->factors_bytes += bytes;
        }
    }
}

static void *run_rank(void *arg)
{
    struct rank_run *r = arg;
    const struct training *t = r->how;
    const struct optim_options oo = {
        .schedule = {.lr = 0.003, .min_lr = 0.001, .steps = MOST_STEPS},
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .clip = 1};
    const struct model_options mo = {.dt = t->dt,
                                     .world = t->ranks,
                                     .rank = r->comm.base.rank,
                                     .comm = &r->comm.base,
                                     .zero = t->zero,
                                     .ordered = t->ordered,
                                     .compress = t->compress,
                                     .passes = t->passes,
                                     .training = true};
    struct model_memory plan;
    struct kops k = *kops_cpu();
    struct model_config c;
    struct model *m;
    struct optim *o;
    int64_t updates = 0;

    k.mem_alloc = counted_alloc;
    taken_bytes = 0;
    CHECK(config_builtin(t->shape, &c, NULL) == 0);
    CHECK(model_open(&c, &k, &mo, &m, NULL) == 0);
    CHECK(model_plan(m, 1, t->seq, &plan, NULL) == 0);
    CHECK(model_reserve(m, 1, t->seq, NULL) == 0);
    CHECK(optim_open(m, &oo, &o, NULL) == 0);
    r->memory_as_planned = taken_bytes >= model_memory_total(&plan) &&
                           taken_bytes < model_memory_total(&plan) + 64; /* the norm's scalars */
    CHECK(model_init(m, 42, NULL) == 0);
    optim_refresh(o, 0);
    r->reported_bytes[0] = zero_gradient_bytes(m, false);
    r->reported_bytes[1] = zero_gradient_bytes(m, true);
    powersgd_rehearse(m, zero_stream(m));
    r->counted_as_sent = true;
    for (int64_t step = 1; step <= t->steps; step++) {
        r->comm.sent_bytes = 0;
        learn(r, m, step);
        r->counted_as_sent &= fabs(r->comm.sent_bytes - m->sent_bytes) < 1e-3;
        r->sent_bytes[step - 1] = m->sent_bytes;
        if (t->zero == 0) {
            r->sum[step - 1] = as_f64(m, m->grad, m->layout.size);
        }
        if (step == t->broken) {
            powersgd_forget(m);
        } else if (t->learns) {
            optim_step(o, ++updates);
        }
    }
    CHECK(model_loss(m, &r->loss, NULL) == 0);
    CHECK(zero_allreduce(m, &r->comm.base, DT_F64, &r->loss, 1) == 0);
    r->loss /= (double)(t->seq * t->ranks * t->passes);
    read_state(r, m);
    layout_init(&r->layout, &c, t->ranks);
    optim_close(&o);
    model_close(&m);
    return NULL;
}

static void drop(struct rank_run *run, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        for (int i = 0; i < MOST_STEPS; i++) {
            free(run[r].sum[i]);
        }
        layout_fini(&run[r].layout);
        free(run[r].left);
        free(run[r].factors);
    }
    free(run);
}

/* All ranks' runs, after they were seen to agree; for drop(). */
static struct rank_run *train(const struct training *t)
{
    struct rank_run *run = mem_array(MOST_RANKS, sizeof *run);
    struct team team;

    team_init(&team, t->ranks);
    for (int r = 0; r < t->ranks; r++) {
        run[r] = (struct rank_run){.how = t, .comm = member_open(&team, r, t->ranks)};
        assert_int_equal(pthread_create(&run[r].thread, NULL, run_rank, &run[r]), 0);
    }
    for (int r = 0; r < t->ranks; r++) {
        pthread_join(run[r].thread, NULL);
        member_close(&run[r].comm);
        assert_true(run[r].memory_as_planned && run[r].counted_as_sent);
        assert_int_equal(run[r].factors_bytes, run[0].factors_bytes);
        assert_memory_equal(run[r].factors, run[0].factors, run[0].factors_bytes);
        for (int64_t i = 0; t->zero == 0 && i < t->steps; i++) {
            assert_memory_equal(run[r].sum[i], run[0].sum[i],
                                (size_t)run[0].layout.size * sizeof(double));
        }
    }
    team_fini(&team);
    return run;
}

/* The largest difference of two sums of gradients, of a tensor beside its largest element:
 * embeddings and vectors must be equal. */
static double difference(const struct layout *l, const double *want, const double *got)
{
    double most = 0;

    for (int i = 0; i < l->tensors; i++) {
        const struct tensor *t = &l->tensor[i];
        double off = 0, largest = 1e-300;

        for (int64_t j = t->offset; j < t->offset + t->rows * t->cols; j++) {
            off = fmax(off, fabs(want[j] - got[j]));
            largest = fmax(largest, fabs(want[j]));
        }
        most = fmax(most, off / largest);
        assert_true(off == 0 || (t->kind >= T_QKV_W && t->kind <= T_OUT_W));
    }
    return most;
}

/* --- tests ------------------------------------------------------------------------------------ */

static const char *const shapes[] = {"tiny-gpt2", "tiny-llama"};

/* Also in stage 1 and where sums are ordered; f32 within a few roundings of the largest element. */
static void test_full_rank_is_the_whole(void **state)
{
    (void)state;
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
        for (int ranks = 2; ranks <= 4; ranks++) {
            struct training t = {
                .shape = shapes[s], .ranks = ranks, .seq = 8, .passes = 2, .steps = 3};

            for (int wide = 0; wide < 2; wide++) {
                struct rank_run *want, *got;

                t.dt = wide ? DT_F64 : DT_F32;
                t.ordered = ranks == 3;
                t.passes = t.ordered ? 1 : 2; /* which would be summed apart otherwise */
                t.compress = (struct compression){0};
                want = train(&t);
                t.compress = (struct compression){.rank = WHOLE};
                got = train(&t);
                for (int i = 0; i < t.steps; i++) {
                    double off = difference(&want->layout, want->sum[i], got->sum[i]);

                    if (!(off <= (wide ? 1e-12 : 1e-6) && off > 0)) {
                        fail_msg("%s, %d ranks, type %d, step %d: %g off", shapes[s], ranks, t.dt,
                                 i + 1, off);
                    }
                }
                drop(want, ranks);
                drop(got, ranks);
            }
        }
    }
}

/* One token a rank: a matrix's gradient is a sum of as many products of two vectors, and of zeros
 * for what makes queries. */
static void test_a_gradient_of_low_rank_is_kept(void **state)
{
    struct training t = {
        .shape = "tiny-llama", .dt = DT_F64, .ranks = 3, .seq = 1, .passes = 1, .steps = 3};
    struct rank_run *want = train(&t), *got;

    (void)state;
    t.compress = (struct compression){.rank = 3};
    got = train(&t);
    for (int i = 0; i < t.steps; i++) {
        double off = difference(&want->layout, want->sum[i], got->sum[i]);

        assert_true(off <= 1e-12 && off > 0);
    }
    drop(want, t.ranks);
    drop(got, t.ranks);
}

/* What the steps gave is what they should have given, but for what all ranks have left. */
static void test_errors_are_made_up_for(void **state)
{
    struct training t = {
        .shape = "tiny-llama", .dt = DT_F64, .ranks = 3, .seq = 8, .passes = 1, .steps = 20};
    struct rank_run *want = train(&t), *got;
    double left = 0;

    (void)state;
    t.compress = (struct compression){.rank = 2, .start = 3};
    got = train(&t);
    for (int64_t j = 0; j < want->layout.size; j++) {
        double sum = 0, errors = 0;

        for (int i = 0; i < t.steps; i++) {
            sum += want->sum[i][j] - got->sum[i][j];
        }
        for (int r = 0; r < t.ranks; r++) {
            errors += got[r].left[j];
        }
        left = fmax(left, fabs(errors));
        assert_true(fabs(sum - errors) <= 1e-12);
    }
    assert_true(left > 1e-6);
    for (int i = 0; i < t.compress.start; i++) {
        assert_memory_equal(want->sum[i], got->sum[i], (size_t)want->layout.size * sizeof(double));
    }
    drop(want, t.ranks);
    drop(got, t.ranks);
}

static void test_a_model_learns_as_well(void **state)
{
    (void)state;
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
        struct training t = {.shape = shapes[s],
                             .dt = DT_F32,
                             .ranks = 2,
                             .seq = 8,
                             .passes = 1,
                             .steps = MOST_STEPS,
                             .learns = true};
        struct rank_run *want = train(&t), *got;

        t.compress = (struct compression){.rank = 4, .start = 8};
        got = train(&t);
        print_message("%s: loss %.4f, compressed %.4f\n", shapes[s], want->loss, got->loss);
        assert_true(want->loss < 3.2 && got->loss <= 1.02 * want->loss);
        drop(want, t.ranks);
        drop(got, t.ranks);
    }
}

/* Stage 1 updates by the same gradients as stage 0. */
static void test_stage_1_is_stage_0(void **state)
{
    struct training t = {.shape = "tiny-llama",
                         .dt = DT_F64,
                         .ranks = 3,
                         .ordered = true,
                         .seq = 8,
                         .passes = 2,
                         .steps = 10,
                         .learns = true,
                         .compress = {.rank = 2, .start = 2}};
    struct rank_run *want = train(&t), *got;

    (void)state;
    t.zero = 1;
    got = train(&t);
    assert_true(want->loss == got->loss);
    for (int r = 0; r < t.ranks; r++) {
        assert_memory_equal(want[r].left, got[r].left, (size_t)want->layout.size * sizeof(double));
    }
    drop(want, t.ranks);
    drop(got, t.ranks);
}

/* tiny-llama with four columns each: q, o, gate, up and down are worth it; k and v are not. */
static void test_bytes_are_as_counted(void **state)
{
    struct training t = {.shape = "tiny-llama",
                         .dt = DT_F32,
                         .ranks = 4,
                         .seq = 8,
                         .passes = 1,
                         .steps = 4,
                         .compress = {.rank = 4, .start = 2, .gain = 2.7}};
    const int64_t q = (32 + 32) * 4, gate = (48 + 32) * 4, matrices = 2 * 32 * 32 + 3 * 32 * 48;
    struct rank_run *got = train(&t);
    double plain = 2.0 * 4 * (double)got->layout.size * 3 / 4;
    double packed =
        2.0 * 4 * (double)(got->layout.size - 2 * (matrices - 2 * q - 3 * gate)) * 3 / 4;

    (void)state;
    assert_true(got->reported_bytes[0] == plain && got->reported_bytes[1] == packed);
    for (int i = 0; i < t.steps; i++) {
        assert_true(fabs(got->sent_bytes[i] - (i < 2 ? plain : packed)) < 1e-3);
    }
    drop(got, t.ranks);
}

/* A step with gradients that are not finite is not taken, and nothing of it is left: the next ones
 * are those of a run that begins there. */
static void test_a_broken_step_leaves_nothing(void **state)
{
    struct training t = {.shape = "tiny-llama",
                         .dt = DT_F32,
                         .ranks = 2,
                         .seq = 8,
                         .passes = 1,
                         .steps = 7,
                         .compress = {.rank = 2, .start = 4}};
    struct rank_run *want = train(&t), *got;

    (void)state;
    t.broken = 4;
    t.compress.start = 1;
    got = train(&t);
    for (int i = 4; i < t.steps; i++) {
        assert_memory_equal(want->sum[i], got->sum[i], (size_t)want->layout.size * sizeof(double));
    }
    for (int64_t j = got->layout.tensor[2].offset, n = 0; n < 10; n++) {
        assert_false(isfinite(got->sum[3][j + n]));
    }
    drop(want, t.ranks);
    drop(got, t.ranks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_rank_is_the_whole),
        cmocka_unit_test(test_a_gradient_of_low_rank_is_kept),
        cmocka_unit_test(test_errors_are_made_up_for),
        cmocka_unit_test(test_a_model_learns_as_well),
        cmocka_unit_test(test_stage_1_is_stage_0),
        cmocka_unit_test(test_bytes_are_as_counted),
        cmocka_unit_test(test_a_broken_step_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
