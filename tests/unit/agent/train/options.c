#include "agent/train/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static struct options o;
static struct err e;

#define PARSE(verb, ...)                                                                           \
    options_parse(verb, (int)ARRAY_LEN(((char *[]){__VA_ARGS__})), (char *[]){__VA_ARGS__}, &o, &e)
#define ARG(text) ((char[]){text})

static void test_both_ways_to_write_a_value(void **state)
{
    (void)state;
    assert_int_equal(PARSE(TRAIN, ARG("--steps"), ARG("7"), ARG("--lr=0.5"), ARG("--out=a=b")), 0);
    assert_true(o.steps == 7 && o.lr == 0.5 && strcmp(o.out, "a=b") == 0);
    assert_true(o.beta1 == 0.9 && o.keep == 3 && strcmp(o.device, "auto") == 0);
}

static void test_flags_and_paths(void **state)
{
    char *argv[] = {ARG("x"), ARG("--json"), ARG("-"), ARG("y")};

    (void)state;
    assert_int_equal(options_parse(INFO, 4, argv, &o, &e), 0);
    assert_true(o.json && o.paths == 3);
    assert_string_equal(o.path[0], "x");
    assert_string_equal(o.path[2], "y");
}

static void test_wrong_usage(void **state)
{
    (void)state;
    assert_int_equal(PARSE(TRAIN, ARG("--stepz"), ARG("7")), E_USAGE);
    assert_non_null(strstr(e.text, "did you mean --steps"));
    assert_int_equal(PARSE(EVAL, ARG("--lr"), ARG("7")), E_USAGE); /* another verb's */
    assert_int_equal(PARSE(TRAIN, ARG("--steps")), E_USAGE);
    assert_int_equal(PARSE(TRAIN, ARG("--steps=")), E_USAGE);
    assert_int_equal(PARSE(TRAIN, ARG("--steps=7x")), E_USAGE);
    assert_int_equal(PARSE(TRAIN, ARG("--steps=99999999999999999999")), E_USAGE);
    assert_int_equal(PARSE(TRAIN, ARG("--lr=nan")), E_USAGE);
    assert_int_equal(PARSE(TRAIN, ARG("--lr=1e999")), E_USAGE);
    assert_int_equal(PARSE(INFO, ARG("-json")), E_USAGE); /* no file of that name */
    assert_non_null(strstr(e.text, "two dashes"));
    assert_int_equal(PARSE(TRAIN, ARG("-h")), 0);
    assert_true(o.help);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_ways_to_write_a_value),
        cmocka_unit_test(test_flags_and_paths),
        cmocka_unit_test(test_wrong_usage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
