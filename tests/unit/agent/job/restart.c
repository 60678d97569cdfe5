#include "agent/job/restart.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>

enum { BACKOFF_MS = 1000 };

static int judge(struct restart *r, int code, int64_t checkpoint, int64_t step, uint64_t *wait_ms)
{
    const struct failure f = {.code = code, .at = {checkpoint, step, 0}};
    uint64_t unused;

    return restart_judge(r, &f, wait_ms != NULL ? wait_ms : &unused, NULL);
}

static void test_which_codes_are_final(void **state)
{
    static const int again[] = {75, 128 + 9, 128 + 11, 128 + 31};
    static const int final[] = {1, 2, 64, 70, 71, 73, 78, 127, 128, 200, 255};
    struct failure killed = {.code = 128 + 9, .by_signal = true, .at = PROGRESS_NONE};
    struct restart r;
    uint64_t wait_ms;

    (void)state;
    restart_init(&r, 100, BACKOFF_MS, 1);
    for (size_t i = 0; i < sizeof again / sizeof again[0]; i++) {
        assert_int_equal(judge(&r, again[i], -1, -1, NULL), 0);
    }
    assert_int_equal(restart_judge(&r, &killed, &wait_ms, NULL), 0);
    for (size_t i = 0; i < sizeof final / sizeof final[0]; i++) {
        assert_int_equal(judge(&r, final[i], -1, -1, NULL), E_INVALID);
    }
    assert_int_equal(r.total, 5);
}

static void test_restarts_are_counted_since_the_last_progress(void **state)
{
    struct restart r;

    (void)state;
    restart_init(&r, 2, BACKOFF_MS, 1);
    assert_int_equal(judge(&r, 75, -1, -1, NULL), 0);
    assert_int_equal(judge(&r, 75, -1, -1, NULL), 0);
    assert_int_equal(judge(&r, 75, 10, -1, NULL), 0); /* a checkpoint: it counts anew */
    assert_int_equal(judge(&r, 75, 10, -1, NULL), 0);
    assert_int_equal(r.total, 4);
    assert_int_equal(judge(&r, 75, 10, -1, NULL), E_AGAIN);
    restart_init(&r, 0, BACKOFF_MS, 1);
    assert_int_equal(judge(&r, 75, -1, -1, NULL), E_AGAIN);
}

static void test_nodes_that_are_lost(void **state)
{
    struct failure lost = {.code = 75, .lost = true, .at = PROGRESS_NONE};
    struct restart r;
    uint64_t wait_ms;

    (void)state;
    restart_init(&r, 1, BACKOFF_MS, 1);
    r.spare = 2;
    for (int i = 0; i < 2; i++) { /* as many as may be missing do not count */
        assert_int_equal(restart_judge(&r, &lost, &wait_ms, NULL), 0);
        assert_true(wait_ms == 0 && r.count == 0);
    }
    assert_int_equal(restart_judge(&r, &lost, &wait_ms, NULL), 0);
    assert_true(wait_ms > 0 && r.count == 1);
    assert_int_equal(restart_judge(&r, &lost, &wait_ms, NULL), E_AGAIN);
    lost.at.checkpoint = 10; /* both counts begin anew */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(restart_judge(&r, &lost, &wait_ms, NULL), 0);
    }
    assert_int_equal(restart_judge(&r, &lost, &wait_ms, NULL), E_AGAIN);
    /* The step is not to blame. */
    restart_init(&r, 100, BACKOFF_MS, 1);
    lost.at.step = 15;
    for (int i = 0; i < 9; i++) {
        assert_int_equal(restart_judge(&r, &lost, &wait_ms, NULL), 0);
    }
}

static void test_used_up_restarts_have_a_code_that_is_final(void **state)
{
    const struct failure again = {.code = 75, .at = PROGRESS_NONE}, final = {.code = 3};
    struct restart r;

    (void)state;
    restart_init(&r, 5, BACKOFF_MS, 1);
    assert_int_equal(restart_exit_code(&r, &again, E_AGAIN), 70);
    assert_int_equal(restart_exit_code(&r, &again, E_INTERNAL), 70);
    assert_int_equal(restart_exit_code(&r, &final, E_INVALID), 3);
    restart_init(&r, 0, BACKOFF_MS, 1); /* no restarts here: whoever started us starts it again */
    assert_int_equal(restart_exit_code(&r, &again, E_AGAIN), 75);
    assert_int_equal(restart_exit_code(&r, &again, E_INTERNAL), 70);
}

static void test_the_third_failure_at_a_step_is_final(void **state)
{
    struct err e = {0};
    struct restart r;
    uint64_t wait_ms;
    const struct failure f = {.code = 75, .at = {20, 25, 0}};

    (void)state;
    restart_init(&r, 100, BACKOFF_MS, 1);
    assert_int_equal(judge(&r, 75, 20, 25, NULL), 0);
    assert_int_equal(judge(&r, 75, 20, 25, NULL), 0);
    assert_int_equal(judge(&r, 75, 20, 26, NULL), 0);
    assert_int_equal(judge(&r, 75, 20, 25, NULL), 0);
    assert_int_equal(judge(&r, 75, 20, 25, NULL), 0);
    assert_int_equal(restart_judge(&r, &f, &wait_ms, &e), E_INTERNAL);
    assert_non_null(strstr(e.text, "3 times in a row after step 25"));
    /* An attempt that did not come to its steps neither counts nor ends the row. */
    restart_init(&r, 100, BACKOFF_MS, 1);
    assert_int_equal(judge(&r, 75, 20, 25, NULL), 0);
    assert_int_equal(judge(&r, 75, 20, 25, NULL), 0);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(judge(&r, 75, 20, -1, NULL), 0);
    }
    assert_int_equal(judge(&r, 75, 20, 25, NULL), E_INTERNAL);
    /* A command that does not say its step has the limit alone. */
    restart_init(&r, 9, BACKOFF_MS, 1);
    for (int i = 0; i < 9; i++) {
        assert_int_equal(judge(&r, 75, -1, -1, NULL), 0);
    }
}

static void test_pauses_double_and_are_spread(void **state)
{
    uint64_t full = BACKOFF_MS, wait_ms, first[2];
    struct restart r;

    (void)state;
    restart_init(&r, 100, BACKOFF_MS, 7);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(judge(&r, 75, -1, -1, &wait_ms), 0);
        assert_true(wait_ms >= full / 2 && wait_ms <= full);
        full = full * 2 < 300000 ? full * 2 : 300000;
    }
    assert_int_equal(judge(&r, 75, 1, -1, &wait_ms), 0);
    assert_true(wait_ms <= BACKOFF_MS);
    for (unsigned i = 0; i < 2; i++) {
        restart_init(&r, 1, 1000000, 12345 + i);
        assert_int_equal(judge(&r, 75, -1, -1, &first[i]), 0);
    }
    assert_true(first[0] != first[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_which_codes_are_final),
        cmocka_unit_test(test_restarts_are_counted_since_the_last_progress),
        cmocka_unit_test(test_nodes_that_are_lost),
        cmocka_unit_test(test_used_up_restarts_have_a_code_that_is_final),
        cmocka_unit_test(test_the_third_failure_at_a_step_is_final),
        cmocka_unit_test(test_pauses_double_and_are_spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
