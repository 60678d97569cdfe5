#include "agent/train/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static const struct recipe usual = {
    .schedule = {.lr = 0.1, .min_lr = 0.01, .warmup = 4, .steps = 20},
    .batch = 2,
    .accum = 1,
    .ranks = 4,
    .tp = 1};
static const struct recipe_place place = {
    .step = 10, .updates = 9, .samples = 80, .windows = 50, .tokens = 1280, .seq = 16};

static void test_rises_and_falls(void **state)
{
    const struct schedule *s = &usual.schedule;

    (void)state;
    assert_true(fabs(schedule_lr(s, 1) - 0.025) < 1e-15);
    assert_true(schedule_lr(s, 4) == 0.1);
    assert_true(fabs(schedule_lr(s, 12) - 0.055) < 1e-15);
    assert_true(schedule_lr(s, 20) == 0.01 && schedule_lr(s, 21) == 0.01);
}

static void expect(const struct recipe *before, const struct recipe *now, const char *want)
{
    struct buf out = BUF_INIT(4096);

    recipe_changes(before, now, &place, &out);
    assert_string_equal(out.n == 0 ? "" : buf_cstr(&out), want);
    buf_free(&out);
}

static void test_nothing_changed_or_nothing_known(void **state)
{
    const struct recipe none = {.batch = 7};

    (void)state;
    expect(&usual, &usual, "");
    expect(&none, &usual, "");
}

static void test_other_ranks(void **state)
{
    struct recipe now = usual;

    (void)state;
    now.ranks = 2;
    expect(&usual, &now,
           "resumed with ranks 2 (was 4): a step takes 64 tokens (was 128), and the run ends after "
           "1920 "
           "(was to end after 2560); the data continues at sample 31 of 50 in epoch 2, and no "
           "sample is skipped or repeated");
    now.accum = 2;
    expect(
        &usual, &now,
        "resumed with --accum 2 (was 1), ranks 2 (was 4): a step takes 128 tokens as before; the "
        "data continues at sample 31 of 50 in epoch 2, and no sample is skipped or repeated");
}

/* Ranks that cut a model see the same samples. */
static void test_another_cut(void **state)
{
    struct recipe now = usual;

    (void)state;
    now.ranks = 1;
    now.tp = 2;
    expect(&usual, &now,
           "resumed with ranks 2 (was 4), --tp 2 (was 1), data-parallel ranks 1 (was 4): a step "
           "takes 32 tokens (was 128), and the run ends after 1600 (was to end after 2560); the "
           "data continues at sample 31 of 50 in epoch 2, and no sample is skipped or repeated");
    now.ranks = 4;
    expect(&now, &usual,
           "resumed with ranks 4 (was 8), --tp 1 (was 2): a step takes 128 tokens as before; the "
           "data continues at sample 31 of 50 in epoch 2, and no sample is skipped or repeated");
    struct recipe unknown = usual; /* in a checkpoint of before */
    unknown.tp = 0;
    expect(&unknown, &usual, "");
    expect(&unknown, &now, "");
    now.ranks = 2;
    expect(
        &unknown, &now,
        "resumed with data-parallel ranks 2 (was 4): a step takes 64 tokens (was 128), and the run "
        "ends after 1920 (was to end after 2560); the data continues at sample 31 of 50 in epoch "
        "2, and no sample is skipped or repeated");
}

/* The learning rate goes by the steps that were taken, of which there are 9. */
static void test_another_schedule(void **state)
{
    struct recipe now = usual;
    char want[256];

    (void)state;
    now.schedule.steps = 10;
    now.schedule.min_lr = 0.02;
    snprintf(
        want, sizeof want,
        "resumed with --steps 10 (was 20), --min-lr 0.02 (was 0.01): the learning rate of the "
        "next step is 0.02 (was to be %.4g) and ends at 0.02 after step 10 (was 0.01 after 20)",
        schedule_lr(&usual.schedule, 10));
    expect(&usual, &now, want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rises_and_falls),
        cmocka_unit_test(test_nothing_changed_or_nothing_known),
        cmocka_unit_test(test_other_ranks),
        cmocka_unit_test(test_another_cut),
        cmocka_unit_test(test_another_schedule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
