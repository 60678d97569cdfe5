/* Trials of operations: operands that are as wanted, times that are of one run, errors that are
 * kept. */
#include "agent/train/trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>
#include <cmocka.h>

#include "common/base/err.h"

static struct trial begin(void)
{
    struct trial t = {.k = kops_cpu(), .least_ns = 1};

    assert_int_equal(t.k->stream_open(&t.ks), 0);
    return t;
}

static void end(struct trial *t)
{
    trial_clear(t);
    t->k->stream_close(&t->ks);
}

static void test_operands(void **state)
{
    enum { N = (1 << 20) + 77 }; /* more than the piece that is made */
    struct trial t = begin();
    const float *x = trial_noise(&t, DT_F32, N);
    const int32_t *token = trial_tokens(&t, 1000, 50);
    int first = 0;

    (void)state;
    assert_int_equal(t.rc, 0);
    for (int i = 0; i < N; i++) {
        assert_true(x[i] >= -1 && x[i] <= 1);
    }
    assert_true(x[N - 1] != 0 && x[0] != x[1]);
    for (int i = 0; i < 1000; i++) {
        assert_in_range(token[i], 0, 49);
        first += token[i] == 0;
    }
    assert_in_range(first, 100, 400); /* as words are: the first one is frequent */
    assert_non_null(trial_noise(&t, DT_BF16, 0));
    end(&t);
}

struct count {
    int runs;
    int fail_at;
};

static int run(void *arg)
{
    struct count *c = arg;
    const struct timespec brief = {0, 200000};

    nanosleep(&brief, NULL);
    return ++c->runs == c->fail_at ? E_CUDA : 0;
}

static void test_time_is_one_runs(void **state)
{
    struct trial t = begin();
    struct count c = {0};
    double took_ns = trial_time(&t, run, &c);

    (void)state;
    assert_true(took_ns >= 200000);
    assert_true(c.runs >= 4); /* two to warm up, and more than one to measure */
    end(&t);
}

static void test_the_first_error_is_kept(void **state)
{
    struct trial t = begin();
    struct count c = {.fail_at = 3};

    (void)state;
    assert_true(trial_time(&t, run, &c) == 0);
    assert_int_equal(t.rc, E_CUDA);
    assert_int_equal(c.runs, 3);
    assert_null(trial_noise(&t, DT_F32, 8));
    assert_null(trial_tokens(&t, 8, 8));
    assert_int_equal(t.rc, E_CUDA);
    end(&t);
}

static void test_no_room(void **state)
{
    struct trial t = begin();

    (void)state;
    assert_null(trial_room(&t, SIZE_MAX));
    assert_int_equal(t.rc, E_NOSPACE);
    end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operands),
        cmocka_unit_test(test_time_is_one_runs),
        cmocka_unit_test(test_the_first_error_is_kept),
        cmocka_unit_test(test_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
