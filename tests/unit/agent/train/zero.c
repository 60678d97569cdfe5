/* Ranks as threads of one process, whose sums are in the order of the ranks: all stages give the
 * same bits, and those of one rank that adds up as many passes, but for rounding. */
#include "agent/train/zero.h"

#include <math.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/train/optim.h"
#include "agent/train/saver.h"
#include "common/os/newfile.h"
#include "tests/unit/agent/train/team.h"
#include "tests/unit/kernels/finite.h"

enum { PASSES = 2, BATCH = 2, SEQ = 7, STEPS = 3, ROWS = BATCH * SEQ };

/* --- memory that is counted ------------------------------------------------------------------- */

static _Thread_local size_t taken_bytes;

static int counted_alloc(void **out, size_t size_bytes)
{
    taken_bytes += size_bytes;
    return kops_cpu()->mem_alloc(out, size_bytes);
}

/* --- a run ------------------------------------------------------------------------------------ */

struct training {
    const char *shape;
    enum dtype dt;
    int ranks;
    int zero;
    int64_t passes; /* of each rank, in a step */
    bool loose;     /* not ordered */
    bool narrow;    /* sums in bf16 */
    int64_t recompute;
    int64_t steps;
    const char *load;     /* a checkpoint to begin with; NULL: fresh weights */
    const char *save;     /* where to write one at the end; NULL: nowhere */
    uint64_t least_bytes; /* of a rank's file of the model */
};

struct rank_run {
    const struct training *how;
    struct member comm;
    pthread_t thread;
    double norm;
    double *param; /* all masters, as f64 */
    int64_t size;
    bool memory_as_planned;
};

static void fill(int32_t *token, int64_t sample, int add)
{
    for (int i = 0; i < ROWS; i++) {
        token[i] = (int32_t)((i * 7 + i * i + sample * 11 + add) % 48);
    }
}

/* Sample numbers go through the ranks' passes in turn, so that one rank with as many passes sees
 * the same. */
static void one_step(struct rank_run *r, struct model *m, struct optim *o, int64_t step)
{
    const struct training *t = r->how;
    int64_t all = t->ranks * t->passes;
    int32_t token[ROWS], target[ROWS];

    model_begin(m);
    for (int64_t pass = 0; pass < t->passes; pass++) {
        int64_t sample = step * all + pass * t->ranks + r->comm.base.rank;

        fill(token, sample, 0);
        fill(target, sample, 5);
        model_forward_backward(m, token, target, BATCH, SEQ, 1.0 / (double)(ROWS * all));
    }
    optim_step(o, step + 1);
    CHECK(optim_norm(o, &r->norm, NULL) == 0);
}

static void read_masters(struct rank_run *r, struct model *m)
{
    r->size = m->layout.size;
    r->param = mem_array((size_t)r->size, sizeof *r->param);
    for (int g = 0; g < m->layout.groups; g++) {
        const struct group *of = &m->layout.group[g];
        const char *whole = zero_collect(m, m->master, m->master_held, g);

        for (int64_t i = 0; i < of->size; i++) {
            r->param[of->offset + i] = m->accum == DT_F64
                                           ? ((const double *)(const void *)whole)[i]
                                           : (double)((const float *)(const void *)whole)[i];
        }
    }
}

static void save(struct rank_run *r, struct model *m, struct optim *o)
{
    const struct companions none = {0};
    const struct saver_options so = {.out = r->how->save,
                                     .comm = &r->comm.base,
                                     .companions = &none,
                                     .least_bytes = r->how->least_bytes};
    const struct train_state state = {.step = r->how->steps, .dtype = "f32"};
    struct saver_report sum;
    struct saver *s;

    CHECK(saver_open(&so, m, o, &s, NULL) == 0);
    CHECK(saver_save(s, &state, NULL) == 0);
    do {
        sum = saver_tell(s, 10);
        CHECK(comm_allreduce(&r->comm.base, m->ks, DT_F64, &sum, 2) == 0);
    } while (saver_settle(s, &sum));
    CHECK(saver_wait(s, NULL) == 0);
    saver_close(&s);
}

static void *run_rank(void *arg)
{
    struct rank_run *r = arg;
    const struct training *t = r->how;
    const struct optim_options oo = {.schedule = {.lr = 0.01, .min_lr = 0.001, .steps = STEPS},
                                     .beta1 = 0.9,
                                     .beta2 = 0.95,
                                     .eps = 1e-8,
                                     .decay = 0.1,
                                     .clip = 0.5,
                                     .seed = 3};
    const struct model_options mo = {.dt = t->dt,
                                     .world = t->ranks,
                                     .rank = r->comm.base.rank,
                                     .comm = &r->comm.base,
                                     .zero = t->zero,
                                     .ordered = !t->loose,
                                     .narrow_sums = t->narrow,
                                     .passes = t->passes,
                                     .training = true,
                                     .recompute = t->recompute};
    struct model_memory plan;
    struct kops k = *kops_cpu();
    struct model_config c;
    struct model *m;
    struct optim *o;

    k.mem_alloc = counted_alloc;
    taken_bytes = 0;
    CHECK(config_builtin(t->shape, &c, NULL) == 0);
    CHECK(model_open(&c, &k, &mo, &m, NULL) == 0);
    CHECK(model_plan(m, BATCH, SEQ, &plan, NULL) == 0);
    CHECK(model_reserve(m, BATCH, SEQ, NULL) == 0);
    CHECK(optim_open(m, &oo, &o, NULL) == 0);
    r->memory_as_planned = taken_bytes >= model_memory_total(&plan) &&
                           taken_bytes < model_memory_total(&plan) + 64; /* the norm's scalars */
    CHECK((t->load != NULL ? checkpoint_load(t->load, m, o, NULL) : model_init(m, 42, NULL)) == 0);
    optim_refresh(o, 0);
    for (int64_t step = 0; step < t->steps; step++) {
        one_step(r, m, o, step);
    }
    if (t->save != NULL) {
        save(r, m, o);
    }
    read_masters(r, m);
    CHECK(m->rc == 0);
    optim_close(&o);
    model_close(&m);
    return NULL;
}

/* The first rank's masters, after the others were seen to have the same, to be freed. */
static double *train(const struct training *t, int64_t *size, double *norm)
{
    struct rank_run run[MOST_RANKS] = {{0}};
    struct team team;

    team_init(&team, t->ranks);
    for (int r = 0; r < t->ranks; r++) {
        run[r] = (struct rank_run){.how = t, .comm = member_open(&team, r, t->ranks)};
        assert_int_equal(pthread_create(&run[r].thread, NULL, run_rank, &run[r]), 0);
    }
    for (int r = 0; r < t->ranks; r++) {
        pthread_join(run[r].thread, NULL);
        assert_true(run[r].memory_as_planned);
        member_close(&run[r].comm);
        if (r > 0) {
            assert_memory_equal(run[0].param, run[r].param, (size_t)run[0].size * sizeof(double));
            free(run[r].param);
        }
    }
    team_fini(&team);
    *size = run[0].size;
    *norm = run[0].norm;
    return run[0].param;
}

static void expect_same_in_all_stages(struct training t)
{
    int64_t size, other_size;
    double norm, other_norm;
    double *want;

    t.steps = STEPS;
    t.zero = 0;
    want = train(&t, &size, &norm);
    for (t.zero = 1; t.zero < ZERO_STAGES; t.zero++) {
        double *got = train(&t, &other_size, &other_norm);

        assert_int_equal(size, other_size);
        assert_memory_equal(want, got, (size_t)size * sizeof *want);
        assert_memory_equal(&norm, &other_norm, sizeof norm);
        free(got);
    }
    free(want);
}

static void test_stages_give_the_same_bits(void **state)
{
    static const char *const shapes[] = {"tiny-gpt2", "tiny-llama"};
    static const enum dtype types[] = {DT_F64, DT_F32, DT_BF16};

    (void)state;
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
        for (size_t d = 0; d < ARRAY_LEN(types); d++) {
            for (int ranks = 2; ranks <= 4; ranks++) {
                expect_same_in_all_stages((struct training){
                    .shape = shapes[s], .dt = types[d], .ranks = ranks, .passes = PASSES});
            }
        }
        expect_same_in_all_stages((struct training){
            .shape = shapes[s], .dt = DT_F32, .ranks = 3, .passes = 1, .recompute = 1});
        expect_same_in_all_stages((struct training){.shape = shapes[s],
                                                    .dt = DT_F32,
                                                    .ranks = 3,
                                                    .passes = 1 + (int64_t)s,
                                                    .narrow = true});
        expect_same_in_all_stages((struct training){
            .shape = shapes[s], .dt = DT_F16, .ranks = 2, .passes = 3, .recompute = 2});
    }
}

/* Gradients are rounded, which shows in each step and decides none. */
static void test_narrow_sums_are_near(void **state)
{
    (void)state;
    for (int zero = 0; zero < ZERO_STAGES; zero++) {
        for (int loose = 0; loose < 2; loose++) {
            struct training t = {.shape = "tiny-llama",
                                 .dt = DT_F32,
                                 .ranks = 3,
                                 .zero = zero,
                                 .passes = 2,
                                 .loose = loose != 0,
                                 .steps = 1};
            double norm, narrow_norm;
            int64_t size;

            free(train(&t, &size, &norm));
            t.narrow = true;
            free(train(&t, &size, &narrow_norm));
            assert_true(norm != narrow_norm && fabs(norm - narrow_norm) <= 0.002 * norm);
        }
    }
}

/* Every parameter near what one rank gets that adds up the passes of all. Padding differs: sizes
 * are compared by the shorter. */
static void test_ranks_are_one_rank(void **state)
{
    static const char *const shapes[] = {"tiny-gpt2", "tiny-llama"};

    (void)state;
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
        const struct training one = {
            .shape = shapes[s], .dt = DT_F64, .ranks = 1, .passes = 4 * PASSES, .steps = STEPS};
        int64_t size, other_size;
        double norm, other_norm;
        double *want = train(&one, &size, &norm);

        for (int zero = 0; zero < ZERO_STAGES; zero++) {
            for (int loose = 0; loose < 2; loose++) {
                const struct training four = {.shape = shapes[s],
                                              .dt = DT_F64,
                                              .ranks = 4,
                                              .passes = PASSES,
                                              .steps = STEPS,
                                              .zero = zero,
                                              .loose = loose != 0};
                double *got = train(&four, &other_size, &other_norm);
                struct model_config c;
                struct layout a, b;

                assert_int_equal(config_builtin(shapes[s], &c, NULL), 0);
                layout_init(&a, &c, 1);
                layout_init(&b, &c, 4);
                for (int i = 0; i < a.tensors; i++) {
                    const struct tensor *x = &a.tensor[i], *y = &b.tensor[i];

                    for (int64_t j = 0; j < x->rows * x->cols; j++) {
                        assert_true(fabs(want[x->offset + j] - got[y->offset + j]) <=
                                    1e-12 * (1 + fabs(want[x->offset + j])));
                    }
                }
                assert_true(fabs(norm - other_norm) <= 1e-12 * norm);
                layout_fini(&a);
                layout_fini(&b);
                free(got);
            }
        }
        free(want);
    }
}

static void expect_same_file(const char *a, const char *b, const char *name)
{
    struct buf one = BUF_INIT(1 << 24), two = BUF_INIT(1 << 24);
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/checkpoint-0/%s", a, name);
    assert_int_equal(buf_read_file(&one, path, NULL), 0);
    snprintf(path, sizeof path, "%s/checkpoint-0/%s", b, name);
    assert_int_equal(buf_read_file(&two, path, NULL), 0);
    assert_int_equal(one.n, two.n);
    assert_memory_equal(one.p, two.p, one.n);
    buf_free(&one);
    buf_free(&two);
}

/* What so many ranks make of a checkpoint, saved as it was loaded: a new folder's name. */
static void save_again(struct training how, int64_t from_step, char dir[64])
{
    char load[PATH_MAX];
    const char *from = how.load;
    int64_t size;
    double norm;

    assert_int_equal(dir_make(dir, 0755, NULL), 0);
    snprintf(load, sizeof load, "%s/checkpoint-%lld", from, (long long)from_step);
    assert_int_equal(checkpoint_verify(load, NULL), 0);
    how.load = load;
    how.save = dir;
    how.passes = 1;
    free(train(&how, &size, &norm));
}

/* Saved by four ranks, loaded by others in other stages, saved again: every tensor's bytes are the
 * same, as one rank saves them. */
static void test_checkpoints_know_no_ranks(void **state)
{
    static const struct {
        int ranks, zero;
        enum dtype dt;
    } next[] = {{1, 0, DT_F32},  {2, 0, DT_F32}, {2, 1, DT_F32},
                {3, 2, DT_BF16}, {4, 3, DT_F32}, {8, 3, DT_BF16}};
    static const char *const shapes[] = {"tiny-gpt2", "tiny-llama"};
    char dir[] = "/tmp/zero-XXXXXX", first[64], whole[64], other[64], again[64];
    int64_t size;
    double norm;

    (void)state;
    assert_non_null(mkdtemp(dir));
    for (int zero = 0; zero < ZERO_STAGES; zero++) {
        const char *shape = shapes[zero % 2];

        snprintf(first, sizeof first, "%s/first-%d", dir, zero);
        assert_int_equal(dir_make(first, 0755, NULL), 0);
        free(train(&(struct training){.shape = shape,
                                      .dt = zero % 2 == 0 ? DT_F32 : DT_BF16,
                                      .ranks = 4,
                                      .zero = zero,
                                      .passes = PASSES,
                                      .steps = STEPS,
                                      .save = first,
                                      .least_bytes = zero < 2 ? 1 : 0},
                   &size, &norm));
        snprintf(whole, sizeof whole, "%s/whole-%d", dir, zero);
        save_again((struct training){.shape = shape, .dt = DT_F32, .ranks = 1, .load = first},
                   STEPS, whole);
        for (size_t i = 0; i < ARRAY_LEN(next); i++) {
            snprintf(other, sizeof other, "%s/then-%d-%zu", dir, zero, i);
            snprintf(again, sizeof again, "%s/again-%d-%zu", dir, zero, i);
            save_again((struct training){.shape = shape,
                                         .dt = next[i].dt,
                                         .ranks = next[i].ranks,
                                         .zero = next[i].zero,
                                         .load = first,
                                         .least_bytes = i % 2},
                       STEPS, other);
            save_again((struct training){.shape = shape, .dt = DT_F32, .ranks = 1, .load = other},
                       0, again);
            expect_same_file(whole, again, "model.safetensors");
            expect_same_file(whole, again, "optimizer.safetensors");
        }
    }
    assert_int_equal(dir_remove_tree(dir, NULL), 0);
}

/* Every element is some rank's, and only that one's. */
static void test_partitions_have_everything_once(void **state)
{
    struct model_config c;
    struct layout l;

    (void)state;
    assert_int_equal(config_builtin("tiny-llama", &c, NULL), 0);
    layout_init(&l, &c, 3);
    for (int64_t offset = 0; offset < l.size; offset += 777) {
        for (int g = 0; g < l.groups; g++) {
            const struct group *of = &l.group[g];
            int64_t n =
                of->offset + of->size - offset < 5000 ? of->offset + of->size - offset : 5000;
            int64_t at = offset;

            if (offset < of->offset || offset >= of->offset + of->size) {
                continue;
            }
            for (int rank = 0; rank < 3; rank++) {
                const struct partition p = {rank, 3};
                struct piece got = partition_clip(&l, p, offset, n),
                             all = partition_group(&l, p, g);

                if (got.n > 0) {
                    assert_int_equal(got.offset, at);
                    assert_int_equal(got.at - all.at, got.offset - all.offset);
                    at += got.n;
                }
            }
            assert_int_equal(at, offset + n);
        }
    }
    assert_int_equal(3 * partition_size(&l, (struct partition){1, 3}), l.size);
    layout_fini(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partitions_have_everything_once),
        cmocka_unit_test(test_stages_give_the_same_bits),
        cmocka_unit_test(test_narrow_sums_are_near),
        cmocka_unit_test(test_ranks_are_one_rank),
        cmocka_unit_test(test_checkpoints_know_no_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
