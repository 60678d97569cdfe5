/* Ranks that measure together: each a thread here, their sums a double of comm.h. */
#include "agent/train/measure.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/os/newfile.h"

enum { TOKENS = 3000, SEQ = 7, BATCH = 3, RANKS_MAX = 5, SUMS_MAX = 256 };

static char path[48];
static struct data *data;

static int begin(void **state)
{
    const struct shard about = {.vocab = 48, .tokenizer = "test"};
    struct shard_writer *w;
    char dir[] = "/tmp/measure.XXXXXX";

    (void)state;
    if (mkdtemp(dir) == NULL) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/data.bin", dir);
    assert_int_equal(shard_create(path, &about, &w, NULL), 0);
    for (int i = 0; i < TOKENS; i++) {
        uint8_t token = (uint8_t)((i * i / 7 + i) % 48);

        assert_int_equal(shard_write(w, &token, sizeof token, NULL), 0);
    }
    assert_int_equal(shard_commit(&w, NULL, NULL), 0);
    return data_open(path, SEQ, 0, &data, NULL);
}

static int end(void **state)
{
    (void)state;
    data_close(&data);
    *strrchr(path, '/') = '\0';
    return dir_remove_tree(path, NULL);
}

/* What the ranks add up, and how much each had to add. */
static struct {
    pthread_mutex_t lock;
    pthread_barrier_t met;
    double sum[SUMS_MAX];
    int given[RANKS_MAX];
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int add_up(struct comm *c, struct kstream *ks, enum dtype dt, void *buf, int64_t n)
{
    double *x = buf;

    (void)ks;
    if (dt != DT_F64 || n > SUMS_MAX) {
        return E_UNSUPPORTED;
    }
    pthread_mutex_lock(&table.lock);
    for (int64_t i = 0; i < n; i++) {
        table.sum[i] += x[i];
        table.given[c->rank] += x[i] != 0;
    }
    pthread_mutex_unlock(&table.lock);
    pthread_barrier_wait(&table.met);
    memcpy(x, table.sum, (size_t)n * sizeof *x);
    if (pthread_barrier_wait(&table.met) == PTHREAD_BARRIER_SERIAL_THREAD) {
        memset(table.sum, 0, sizeof table.sum);
    }
    pthread_barrier_wait(&table.met);
    return 0;
}

struct rank {
    struct comm comm;
    struct model *m;
    int64_t batches;
    struct measured result;
    int rc;
};

static void *run_rank(void *arg)
{
    struct rank *r = arg;

    r->rc = measure(r->m, data, BATCH, r->batches, &r->comm, &r->result, NULL);
    return NULL;
}

static struct model *tiny(enum dtype dt)
{
    const struct model_options o = {.dt = dt, .world = 1};
    struct model_config c;
    struct model *m;

    assert_int_equal(config_builtin("tiny-gpt2", &c, NULL), 0);
    assert_int_equal(model_open(&c, kops_cpu(), &o, &m, NULL), 0);
    assert_int_equal(model_reserve(m, BATCH, SEQ, NULL), 0);
    assert_int_equal(model_init(m, 42, NULL), 0);
    return m;
}

/* The same bits as of one rank, and the work shared out. */
static void expect_same(enum dtype dt, int ranks, int64_t batches)
{
    struct model *m = tiny(dt);
    struct measured alone;
    struct rank rank[RANKS_MAX] = {0};
    pthread_t thread[RANKS_MAX];
    int64_t all;

    assert_int_equal(measure(m, data, BATCH, batches, NULL, &alone, NULL), 0);
    model_close(&m);
    all = (int64_t)((alone.windows + BATCH - 1) / BATCH);
    assert_int_equal(pthread_barrier_init(&table.met, NULL, (unsigned)ranks), 0);
    memset(table.given, 0, sizeof table.given);
    for (int i = 0; i < ranks; i++) {
        rank[i] = (struct rank){
            .comm = {.rank = i, .size = ranks, .post_allreduce = add_up, .flight = flight_open()},
            .m = tiny(dt),
            .batches = batches};
        assert_int_equal(pthread_create(&thread[i], NULL, run_rank, &rank[i]), 0);
    }
    for (int i = 0; i < ranks; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        flight_close(&rank[i].comm.flight);
        assert_int_equal(rank[i].rc, 0);
        assert_true(isfinite(alone.loss) && rank[i].result.loss == alone.loss);
        assert_true(rank[i].result.windows == alone.windows &&
                    rank[i].result.tokens == alone.tokens);
        assert_int_equal(table.given[i], (all - i + ranks - 1) / ranks);
        model_close(&rank[i].m);
    }
    pthread_barrier_destroy(&table.met);
}

static void test_ranks_share_it_out(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
        expect_same(DT_F64, ranks, 20);
        expect_same(DT_F32, ranks, 7);
    }
    expect_same(DT_F64, 4, 0); /* all windows: 428 of them, the last batch is not full */
    expect_same(DT_F64, 3, 1); /* two ranks have nothing to do */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ranks_share_it_out, begin, end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
