#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/sync/file_filter.h"

static struct file_filter *file_filter_of(const char *const *rules, uint64_t max_size,
                                          const char *links)
{
    struct sync_conf c = {
        .filter = rules, .links = links, .max_size_bytes = max_size, .list = "index"};
    struct file_filter *s = NULL;
    struct err e = {0};

    while (rules != NULL && rules[c.filter_count] != NULL) {
        c.filter_count++;
    }
    assert_int_equal(file_filter_new(&c, &s, &e), 0);
    return s;
}

static bool wants(struct file_filter *s, const char *path)
{
    return file_filter_wants_path(s, slice_str(path), false);
}

static void folders_take_what_is_below_with_them(void **state)
{
    static const char *const rules[] = {"+ /a/", "+ /a/b/***", "- /a/*", "- c/", NULL};
    struct file_filter *s = file_filter_of(rules, 0, "keep");

    (void)state;
    for (int i = 0; i < 2; i++) { /* what was judged last is remembered */
        assert_true(wants(s, "a/b/x/y"));
        assert_false(wants(s, "a/d/x/y"));
        assert_true(wants(s, "a/b/c/y"));
        assert_false(wants(s, "x/c/d/e"));
        assert_true(wants(s, "x/c")); /* a file */
        assert_false(file_filter_wants_path(s, SLICE("x/c"), true));
        assert_true(wants(s, "top"));
    }
    file_filter_free(&s);
}

static void nothing_to_judge(void **state)
{
    struct file_filter *s = file_filter_of(NULL, 0, "keep");
    size_t n;

    (void)state;
    assert_null(s);
    assert_true(wants(s, "x"));
    assert_null(file_filter_rules(s, &n));
    assert_int_equal(n, 0);
}

static void sizes(void **state)
{
    struct file_filter *s = file_filter_of(NULL, 100, "keep");
    struct sync_entry en = {.type = SYNC_FILE, .path = SLICE("x"), .size_bytes = 100};

    (void)state;
    assert_true(file_filter_wants(s, &en));
    en.size_bytes = 101;
    assert_false(file_filter_wants(s, &en));
    en.size_bytes = SYNC_SIZE_UNKNOWN;
    assert_true(file_filter_wants(s, &en));
    file_filter_free(&s);
}

static void links_that_stay(void **state)
{
    static const struct {
        const char *path, *target;
        bool stays;
    } v[] = {
        {"l", "a", true},          {"l", "/a", false},         {"l", "", false},
        {"l", "..", false},        {"a/l", "..", true},        {"a/l", "../b", true},
        {"a/l", "../../b", false}, {"a/b/l", "../../c", true}, {"a/b/l", "../..", false},
        {"a/l", "x/../y", false},  {"a/l", "./../y", false},   {"a/l", "x/..", false},
        {"l", "./x//y", true},     {"a/l", "..b/c", true},     {"l", "../l", false},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        if (file_filter_link_stays(slice_str(v[i].path), slice_str(v[i].target)) != v[i].stays) {
            fail_msg("%s -> %s", v[i].path, v[i].target);
        }
    }
}

static void settings_that_make_another_list(void **state)
{
    static const char *const one[] = {"- a", "- b"};
    static const char *const other[] = {"- a- b"};
    struct sync_conf c = {.links = "keep", .list = "index"};
    uint64_t none = file_filter_print(&c), two, joined;

    (void)state;
    c.filter = one;
    c.filter_count = 2;
    two = file_filter_print(&c);
    c.filter = other;
    c.filter_count = 1;
    joined = file_filter_print(&c);
    assert_true(none != two && two != joined && none != joined);
    c.filter_count = 0;
    assert_true(file_filter_print(&c) == none);
    c.max_size_bytes = 1;
    assert_true(file_filter_print(&c) != none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_take_what_is_below_with_them),
        cmocka_unit_test(nothing_to_judge),
        cmocka_unit_test(sizes),
        cmocka_unit_test(links_that_stay),
        cmocka_unit_test(settings_that_make_another_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
