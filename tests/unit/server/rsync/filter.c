#include "server/rsync/filter.h"

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
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        if (filter_match(slice_str(v[i].pattern), slice_str(v[i].text)) != v[i].yes) {
            fail_msg("%s against %s", v[i].pattern, v[i].text);
        }
    }
}

static bool takes(const char *const *rules, const char *path, bool is_folder)
{
    struct filter f = {.count = 0};
    struct err e;
    bool yes;

    for (; *rules != NULL; rules++) {
        assert_int_equal(filter_add(&f, slice_str(*rules), &e), 0);
    }
    yes = filter_takes(&f, slice_str(path), is_folder);
    filter_fini(&f);
    return yes;
}
#define RULES(...) ((const char *const[]){__VA_ARGS__, NULL})

static void rules(void **state)
{
    (void)state;
    assert_false(takes(RULES("- *.iso"), "a/b.iso", false));
    assert_true(takes(RULES("+ b.iso", "- *.iso"), "a/b.iso", false));
    assert_false(takes(RULES("- /a"), "a", true));
    assert_true(takes(RULES("- /a"), "b/a", true));
    assert_true(takes(RULES("- tmp/"), "tmp", false));
    assert_false(takes(RULES("- tmp/"), "x/tmp", true));
    assert_false(takes(RULES("- b/c"), "a/b/c", false));
    assert_true(takes(RULES("- b/c"), "a/xb/c", false));
    assert_false(takes(RULES("- /d/***"), "d", true));
    assert_false(takes(RULES("- /d/***"), "d/e/f", false));
    assert_true(takes(RULES("- /d/***"), "e/d", true));
    assert_false(takes(RULES("-s x"), "x", false));
    assert_true(takes(RULES("-r x"), "x", false));
    assert_true(takes(RULES("P x"), "x", false));
    assert_false(takes(RULES("H x"), "x", false));
    assert_true(takes(RULES("- x", "!"), "x", false));
    assert_false(takes(RULES("-! *.deb"), "x", false));
    assert_false(takes(RULES("-/ x"), "x", false));
    assert_true(takes(RULES("-/ x"), "a/x", false));
}

static void rules_that_are_not_known(void **state)
{
    static const char *const v[] = {". merged", ": .rsync-filter", "x", "- ", "-e .f", "&x y", ""};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        struct filter f = {.count = 0};
        struct err e;
        assert_int_equal(filter_add(&f, slice_str(v[i]), &e), E_UNSUPPORTED);
        filter_fini(&f);
    }
}

static void a_pattern_that_would_take_for_ever(void **state)
{
    char text[2000];
    (void)state;
    memset(text, 'a', sizeof text);
    assert_false(filter_match(SLICE("*a*a*a*a*a*a*a*a*a*a*a*a*b"), slice_of(text, sizeof text)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns),
        cmocka_unit_test(rules),
        cmocka_unit_test(rules_that_are_not_known),
        cmocka_unit_test(a_pattern_that_would_take_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
