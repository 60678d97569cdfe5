#include "common/codec/filter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

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

static void rules_that_are_reported_apart(void **state)
{
    (void)state;
    /* '**' and '/' before a name: at the top too. */
    assert_false(takes(RULES("- **/x"), "x", false));
    assert_false(takes(RULES("- **/x"), "a/b/x", false));
    assert_true(takes(RULES("- **/x"), "ax", false));
    assert_false(takes(RULES("- **x"), "a/bx", false));
    assert_true(takes(RULES("- /**/x"), "x", false));
    /* Without a wildcard '\\' is a byte like others. */
    assert_false(takes(RULES("- a\\b"), "a\\b", false));
    assert_true(takes(RULES("- a\\b"), "ab", false));
    assert_false(takes(RULES("- a\\*b"), "a*b", false));
    assert_true(takes(RULES("- a\\*b"), "axb", false));
}

static int own(const char *const *rules, struct filter *f, struct err *e)
{
    const struct filter_rule *bad;
    int rc = 0;

    *f = (struct filter){.count = 0};
    for (; *rules != NULL && rc == 0; rules++) {
        rc = filter_add_own(f, slice_str(*rules), e);
    }
    return rc == 0 ? filter_check(f, &bad, e) : rc;
}

static void rules_of_settings(void **state)
{
    const char *const *const good[] = {
        RULES("- *.iso", "+ /pool/", "+ /pool/main/***", "- *"),
        RULES("exclude *.iso", "include x", "hide_y", "-_z", "-! *.deb", "exclude,! *.a b"),
        RULES("- *", "!", "+ /a/b"),
        RULES("+ /a*/b", "- *"), /* which a, is not known here */
        RULES("clear"),
    };
    const char *const *const bad[] = {
        RULES("x"),
        RULES("- "),
        RULES("-"),
        RULES(""),
        RULES("merge f"),
        RULES(". f"),
        RULES(": .f"),
        RULES("dir-merge f"),
        RULES("P x"),
        RULES("protect x"),
        RULES("-/ /a"),
        RULES("-r x"),
        RULES("-C"),
        RULES("-p x"),
        RULES("excluded x"),
        RULES("- *", "+ /a/b"),
        RULES("+ /pool/main/***", "- *"),
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good) + ARRAY_LEN(bad); i++) {
        struct filter f;
        struct err e = {0};
        bool right = i < ARRAY_LEN(good);
        int rc = own(right ? good[i] : bad[i - ARRAY_LEN(good)], &f, &e);
        if ((rc == 0) != right) {
            fail_msg("%zu: %s", i, e.text);
        }
        filter_fini(&f);
    }
}

static void rules_that_travel(void **state)
{
    struct filter f;
    struct err e;

    (void)state;
    assert_int_equal(own(RULES("exclude,! *.a b", "hide_y"), &f, &e), 0);
    assert_string_equal(f.first->text.p, "-! *.a b");
    assert_string_equal(f.first->next->text.p, "- y");
    filter_fini(&f);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules),
        cmocka_unit_test(rules_that_are_reported_apart),
        cmocka_unit_test(rules_of_settings),
        cmocka_unit_test(rules_that_travel),
        cmocka_unit_test(rules_that_are_not_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
