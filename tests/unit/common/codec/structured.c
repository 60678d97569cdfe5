#include "common/codec/structured.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* How many members it has; -1: it is no dictionary. */
static int members(const char *text, struct structured_member *last)
{
    struct slice rest = slice_str(text);
    struct structured_member m;
    int n = 0;
    int rc;

    *last = (struct structured_member){0};
    while ((rc = structured_next(&rest, &m)) == 1) {
        *last = m;
        n++;
    }
    return rc == 0 ? n : -1;
}

static void test_values(void **state)
{
    struct structured_member m;

    (void)state;
    assert_int_equal(members("max-age=60", &m), 1);
    assert_true(slice_eqs(m.key, "max-age"));
    assert_int_equal(m.kind, STRUCTURED_INTEGER);
    assert_int_equal(m.integer, 60);
    assert_int_equal(members("a=-999999999999999", &m), 1);
    assert_true(m.integer == -999999999999999);
    assert_int_equal(members("a, b=?0", &m), 2);
    assert_true(m.kind == STRUCTURED_BOOLEAN && !m.boolean);
    assert_int_equal(members("a;x=1;y", &m), 1);
    assert_true(m.kind == STRUCTURED_BOOLEAN && m.boolean);
    assert_int_equal(members("a=\"b \\\" \\\\ c\"", &m), 1);
    assert_int_equal(m.kind, STRUCTURED_STRING);
}

static void test_dictionaries(void **state)
{
    static const char *const whole[] = {"a=1 ,\tb=2 ,c", "a=1.5",           "a=tok/en:x",
                                        "a=:aGk=:",      "a=(1 \"x\" y;z)", "a=( )",
                                        "a=(1);p=x",     "a=@1659578233",   "*a_-.=1",
                                        "a;  b",         "a=%\"f%c3%bc\"",  "a=123456789012.123"};
    static const char *const none[] = {"A=1",        "a=",       "a =1",
                                       "a= 1",       "a=1,",     ",a=1",
                                       "a=1 b=2",    "1a=1",     "a=1;",
                                       "a=--1",      "a=\"x",    "a=\"\\x\"",
                                       "a=\"\t\"",   "a=?2",     "a=:x",
                                       "a=(1",       "a=(1,2)",  "a=1234567890123456",
                                       "a=1.",       "a=1.2345", "a=1234567890123.1",
                                       "a=@1.5",     "a=%x",     "&&&&&",
                                       "a=\"\xfc\"", "a=(1)b",   "a;=1"};
    struct structured_member m;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(whole); i++) {
        if (members(whole[i], &m) < 1) {
            fail_msg("%s", whole[i]);
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        if (members(none[i], &m) != -1) {
            fail_msg("%s", none[i]);
        }
    }
    assert_int_equal(members("", &m), 0);
    assert_int_equal(members("  ", &m), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_dictionaries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
