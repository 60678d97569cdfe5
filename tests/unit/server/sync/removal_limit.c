#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/sync/removal_limit.h"

static int judge(const char *limit, uint64_t before, uint64_t listed, uint64_t gone)
{
    struct removal_limit l = {0};
    struct err e = {0};

    if (limit != NULL) {
        assert_true(removal_limit_parse(limit, &l));
    }
    return removal_judge(&l, before, listed, gone, &e);
}

static void test_the_usual_rules(void **state)
{
    (void)state;
    assert_int_equal(judge(NULL, 0, 10, 0), 0);
    assert_int_equal(judge(NULL, 10, 0, 10), E_REFUSED); /* empty */
    assert_int_equal(judge(NULL, 0, 0, 0), E_REFUSED);
    assert_int_equal(judge(NULL, 10, 5, 5), 0);
    assert_int_equal(judge(NULL, 10, 4, 6), E_REFUSED); /* more than half */
    assert_int_equal(judge(NULL, 1, 1, 1), 0);          /* the only file got another name */
    assert_int_equal(judge(NULL, 10000, 9001, 999), 0); /* a tenth, but few */
    assert_int_equal(judge(NULL, 10000, 9000, 1000), E_REFUSED);
    assert_int_equal(judge(NULL, 20000, 19000, 1000), 0); /* 5 % is not more than 5 % */
    assert_int_equal(judge(NULL, 19999, 18999, 1000), E_REFUSED);
}

static void test_max_delete(void **state)
{
    struct removal_limit l;

    (void)state;
    assert_int_equal(judge("3", 10, 7, 3), 0);
    assert_int_equal(judge("3", 10, 6, 4), E_REFUSED);
    assert_int_equal(judge("0", 10, 10, 1), E_REFUSED);
    assert_int_equal(judge("90%", 10, 1, 9), 0); /* what the usual rules would hold */
    assert_int_equal(judge("20%", 10, 7, 3), E_REFUSED);
    assert_int_equal(judge("100%", 10, 0, 10), E_REFUSED); /* an empty list never passes */
    assert_false(removal_limit_parse("", &l));
    assert_false(removal_limit_parse("x", &l));
    assert_false(removal_limit_parse("0%", &l));
    assert_false(removal_limit_parse("-1", &l));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_usual_rules),
        cmocka_unit_test(test_max_delete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
