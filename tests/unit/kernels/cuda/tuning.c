#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#ifdef HAVE_SIMT
#    include <stdio.h>
#    include <stdlib.h>
#    include <string.h>
#    include <unistd.h>

#    include "kernels/cuda/tuning.h"

static void test_first_answer_stays(void **state)
{
    char one[8] = "one", two[8] = "two", got[8];
    struct tuning t = {0}, other = {0};

    (void)state;
    tuning_open(&t, "NVIDIA H200 / driver 13");
    assert_string_not_equal(t.folder, "");
    assert_false(tuning_find(&t, "8x8", got, sizeof got));
    assert_true(tuning_keep(&t, "8x8", one, sizeof one));
    assert_true(tuning_keep(&t, "8x8", two, sizeof two)); /* another rank, a moment later */
    assert_string_equal(two, "one");
    assert_true(tuning_find(&t, "8x8", got, sizeof got));
    assert_string_equal(got, "one");
    tuning_open(&other, "another machine");
    assert_false(tuning_find(&other, "8x8", got, sizeof got));
    tuning_drop(&t, "8x8");
    assert_false(tuning_find(&t, "8x8", got, sizeof got));
}

static void test_other_sizes_are_no_answers(void **state)
{
    char answer[8] = "answer", shorter[4], longer[16];
    struct tuning t = {0};

    (void)state;
    tuning_open(&t, "machine");
    assert_true(tuning_keep(&t, "sizes", answer, sizeof answer));
    assert_false(tuning_find(&t, "sizes", shorter, sizeof shorter));
    assert_false(tuning_find(&t, "sizes", longer, sizeof longer));
}

/* Whatever a device calls itself: one folder below ours. */
static void test_names_are_no_paths(void **state)
{
    struct tuning t = {0};
    char want[512];

    (void)state;
    tuning_open(&t, "../../x y");
    snprintf(want, sizeof want, "%s/trainer/-.-..-x-y", getenv("XDG_CACHE_HOME"));
    assert_string_equal(t.folder, want);
}

static void test_nowhere_to_keep(void **state)
{
    struct tuning t = {0};
    char answer[4] = "yes", *cache = strdup(getenv("XDG_CACHE_HOME"));

    (void)state;
    setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
    tuning_open(&t, "machine");
    assert_string_equal(t.folder, "");
    assert_false(tuning_keep(&t, "question", answer, sizeof answer));
    assert_false(tuning_find(&t, "question", answer, sizeof answer));
    setenv("XDG_CACHE_HOME", cache, 1);
    free(cache);
}

int main(void)
{
    char folder[4096];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_answer_stays),
        cmocka_unit_test(test_other_sizes_are_no_answers),
        cmocka_unit_test(test_names_are_no_paths),
        cmocka_unit_test(test_nowhere_to_keep),
    };

    if (getcwd(folder, sizeof folder) == NULL) {
        return 1;
    }
    setenv("XDG_CACHE_HOME", strcat(folder, "/cache"), 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
static void test_skipped(void **state)
{
    (void)state;
    print_message("skipped: linked with tests/simt, which sanitizers do not understand\n");
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_skipped)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
