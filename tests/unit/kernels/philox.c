#include "kernels/philox.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* The known answers of the authors' own test suite. */
static void test_known_answers(void **state)
{
    static const struct {
        uint64_t key, high, low;
        uint32_t want[4];
    } known[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822,
         0x0370734413198a2e,
         0x85a308d3243f6a88,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct philox r = philox_at(known[i].key, known[i].high, known[i].low);
        assert_memory_equal(r.v, known[i].want, sizeof r.v);
    }
}

static void test_normal_has_mean_0_and_variance_1(void **state)
{
    double sum = 0, sumsq = 0;
    enum { N = 20000 };

    (void)state;
    for (int i = 0; i < N; i++) {
        struct philox r = philox_at(7, 0, (uint64_t)i);
        double x[2];

        philox_normal(&r, x);
        sum += x[0] + x[1];
        sumsq += x[0] * x[0] + x[1] * x[1];
    }
    assert_true(fabs(sum / (2 * N)) < 0.02);
    assert_true(fabs(sumsq / (2 * N) - 1) < 0.03);
    assert_true(philox_uniform(0) > 0 && philox_uniform(UINT32_MAX) < 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_normal_has_mean_0_and_variance_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
