/* What options come to: --dtype auto by the device and by the checkpoint that a run goes on from,
 * --reduce-dtype by the ranks. */
#include "agent/train/verbs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static const struct kops plain = {.name = "cpu", .device = "CPU"};
static const struct kops old = {.name = "cuda", .device = "Tesla T4"};
static const struct kops new = {.name = "cuda", .device = "NVIDIA A100", .bf16 = true};

static const char *chosen(const char *said, const struct kops *k, const char *before)
{
    struct options o = {.dtype = said};

    setup_dtype(&o, k, before, false);
    return o.dtype;
}

static void test_auto_is_what_the_device_is_fast_with(void **state)
{
    (void)state;
    assert_string_equal(chosen("auto", &plain, ""), "f32");
    assert_string_equal(chosen("auto", &old, ""), "f32");
    assert_string_equal(chosen("auto", &new, ""), "bf16");
    assert_false(kops_cpu()->bf16);
}

static void test_a_run_goes_on_in_its_own_type(void **state)
{
    (void)state;
    assert_string_equal(chosen("auto", &new, "f32"), "f32");
    assert_string_equal(chosen("auto", &plain, "bf16"), "bf16");
    assert_string_equal(chosen("auto", &new, "fp16"), "fp16");
}

static void test_what_was_said_stays(void **state)
{
    (void)state;
    assert_string_equal(chosen("f32", &new, "bf16"), "f32");
    assert_string_equal(chosen("fp64", &new, ""), "fp64"); /* refused where it is used */
}

static void test_it_is_the_default(void **state)
{
    static const enum verb verbs[] = {TRAIN, EVAL, SAMPLE, BENCH, INFO};
    struct options o;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        assert_int_equal(options_parse(verbs[i], 0, NULL, &o, NULL), 0);
        assert_string_equal(o.dtype, "auto");
    }
}

/* Groups of one rank hold copies, and sum gradients all the same. */
static void test_sums_are_narrow_wherever_ranks_sum(void **state)
{
    static const struct {
        int64_t group;
        int world;
        bool narrow;
    } of[] = {{0, 4, true}, {2, 4, true}, {1, 4, true}, {0, 1, false}};
    struct model_config c;
    struct options o;

    (void)state;
    assert_int_equal(options_parse(TRAIN, 0, NULL, &o, NULL), 0);
    assert_int_equal(config_builtin("gpt2-124m", &c, NULL), 0);
    o.dtype = "f32";
    o.zero = 1;
    o.reduce_dtype = "bf16";
    for (size_t i = 0; i < ARRAY_LEN(of); i++) {
        const struct setup s = {.world = of[i].world, .training = true};
        struct model *m;

        o.shard_group = of[i].group;
        assert_int_equal(setup_open(&o, &c, kops_cpu(), &s, &m, NULL), 0);
        assert_int_equal(m->o.narrow_sums, of[i].narrow);
        model_close(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auto_is_what_the_device_is_fast_with),
        cmocka_unit_test(test_a_run_goes_on_in_its_own_type),
        cmocka_unit_test(test_what_was_said_stays),
        cmocka_unit_test(test_it_is_the_default),
        cmocka_unit_test(test_sums_are_narrow_wherever_ranks_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
