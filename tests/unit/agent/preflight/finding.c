#include "agent/preflight/finding.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>

static void test_the_worst_decides(void **state)
{
    struct finding f = {.worst_allowed = LEVEL_CRIT};

    (void)state;
    finding_ok(&f, "fine");
    finding_warn(&f, "WARM", "cool it", "GPU %d: %d C", 0, 80);
    finding_ok(&f, "not told any more");
    finding_bad(&f, "HOT", "stop", "GPU 1: 95 C");
    finding_warn(&f, "WARM", "cool it", "GPU 2: 80 C");
    finding_bad(&f, "HOTTER", "stop it", "GPU 3: 96 C");
    assert_int_equal(f.level, LEVEL_CRIT);
    assert_string_equal(f.code, "HOT");
    assert_string_equal(f.hint, "stop");
    assert_string_equal(f.text, "GPU 1: 95 C; GPU 3: 96 C");
}

static void test_what_may_only_warn(void **state)
{
    struct finding f = {.worst_allowed = LEVEL_WARN};

    (void)state;
    finding_bad(&f, "HOT", "stop", "GPU 1: 95 C");
    assert_int_equal(f.level, LEVEL_WARN);
}

static void test_skipping(void **state)
{
    struct finding f = {.worst_allowed = LEVEL_CRIT}, g = f, h = f;

    (void)state;
    finding_skip(&f, "no GPU");
    finding_ok(&f, "0 GPUs");
    assert_int_equal(f.level, LEVEL_SKIP);
    assert_string_equal(f.text, "no GPU");
    finding_bad(&g, "X", "", "bad");
    finding_skip(&g, "no");
    assert_int_equal(g.level, LEVEL_CRIT);
    finding_skip(&h, "no");
    finding_bad(&h, "X", "", "bad after all");
    assert_int_equal(h.level, LEVEL_CRIT);
    assert_string_equal(h.text, "bad after all");
}

static void test_many_and_odd_ones(void **state)
{
    struct finding f = {.worst_allowed = LEVEL_CRIT};

    (void)state;
    for (int i = 0; i < 100; i++) {
        finding_bad(&f, "A_CODE_THAT_IS_FAR_TOO_LONG_FOR_ITS_ROOM", "\n", "GPU %d:\x1b[31m\nlost",
                    i);
    }
    assert_int_equal(f.reported + f.more, 100);
    assert_true(f.more > 0 && strlen(f.text) < sizeof f.text);
    assert_null(strpbrk(f.text, "\x1b\n"));
    assert_int_equal(strncmp(f.text, "GPU 0: [31m lost; GPU 1:", 24), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_worst_decides),
        cmocka_unit_test(test_what_may_only_warn),
        cmocka_unit_test(test_skipping),
        cmocka_unit_test(test_many_and_odd_ones),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
