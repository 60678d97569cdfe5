#include "common/codec/glob.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void patterns(void **state)
{
    static const struct {
        const char *pattern, *text;
        bool yes;
    } v[] = {
        {"*", "", true},
        {"*", "abc", true},
        {"*", "a/c", false},
        {"**", "a/c", true},
        {"a*c", "abbc", true},
        {"a*c", "ab/c", false},
        {"a**c", "ab/c", true},
        {"?", "/", false},
        {"?", "x", true},
        {"[a-c]x", "bx", true},
        {"[!a-c]x", "bx", false},
        {"[^a]", "b", true},
        {"[]]", "]", true},
        {"[a", "[a", true},
        {"\\*", "*", true},
        {"\\*", "x", false},
        {"a\\", "a\\", true},
        {"*.deb", "x.deb", true},
        {"*.deb", "x.deb.", false},
        {"*a*b*c*", "xaybzc", true},
        {"", "", true},
        {"", "a", false},
        {"[a-]", "-", true},
        {"[/]", "/", false},
        {"[[:digit:]a]x", "7x", true},
        {"[[:digit:]a]x", "ax", true},
        {"[![:digit:]]", "7", false},
        {"[[:upper:][:lower:]]", "q", true},
        {"[[:nothing:]", "t", true},
        {"[\\]]", "]", true},
        {"[a-\\c]", "b", true},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        if (glob_match(slice_str(v[i].pattern), slice_str(v[i].text)) != v[i].yes) {
            fail_msg("%s against %s", v[i].pattern, v[i].text);
        }
    }
}

static void a_pattern_that_would_take_for_ever(void **state)
{
    char text[2000];
    (void)state;
    memset(text, 'a', sizeof text);
    assert_false(glob_match(SLICE("*a*a*a*a*a*a*a*a*a*a*a*a*b"), slice_of(text, sizeof text)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns),
        cmocka_unit_test(a_pattern_that_would_take_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
