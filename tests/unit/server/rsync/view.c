#include "server/rsync/view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

static struct file_list *small_list(void)
{
    static const char *const paths[] = {".",     "a/",      "a/b/",     "a/b/c/",    "a/b/c/h",
                                        "a/b/f", "a/g",     "e/",       "e/g",       "foo/",
                                        "foo/x", "foo-bar", "foo.bar/", "foo.bar/x", "top"};
    struct file_list *l = list_new((struct list_form){true, true, true}, LIST_LIMITS);

    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        struct slice p = slice_str(paths[i]);
        bool folder = i == 0 || slice_ends(p, SLICE("/"));
        p.n -= slice_ends(p, SLICE("/"));
        assert_int_equal(list_add(l, p, folder ? 0040755 : 0100644, 1, 1, SLICE_NONE, NULL), 0);
    }
    assert_int_equal(list_sort(l, NULL), 0);
    return l;
}

/* "top:path " of each; '-' a folder of whose contents nothing is said, '+' asked for by name. */
static void tell(const struct view *v, char *out, size_t room)
{
    char path[LIST_PATH_MAX + 1];
    size_t n = 0;

    out[0] = '\0';
    for (uint32_t i = 0; i < v->count; i++) {
        struct slice p = view_path(v, i, path);
        n += (size_t)snprintf(out + n, room - n, "%s%s" SLICE_FMT, i > 0 ? " " : "",
                              (v->entry[i].say & VIEW_BARE) != 0 ? "-" : "", SLICE_ARG(p));
    }
}

static void check(const char *letters, const char *const *paths, const char *rule, const char *want)
{
    struct file_list *l = small_list();
    struct client_options o = {.folders = strchr(letters, 'r') != NULL   ? FOLDERS_ENTERED
                                          : strchr(letters, 'd') != NULL ? FOLDERS_THEMSELVES
                                                                         : FOLDERS_PASSED_OVER,
                               .relative = strchr(letters, 'R') != NULL};
    struct filter f = {.count = 0};
    struct budget budget = {.max = 0};
    struct view v;
    char got[500];

    if (rule != NULL) {
        assert_int_equal(filter_add(&f, slice_str(rule), NULL), 0);
    }
    view_init(&v, l, &budget);
    for (; *paths != NULL; paths++) {
        struct ask a;
        if (ask_path(slice_str(*paths), &o, &a, NULL) == 0) {
            (void)!view_add(&v, &a, &o, &f, NULL);
        }
    }
    tell(&v, got, sizeof got);
    assert_string_equal(got, want);
    view_fini(&v);
    filter_fini(&f);
    list_free(&l);
}

#define PATHS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Each of these was seen of the installed program, but for the order, which both ends make. */
static void one_path(void **state)
{
    (void)state;
    check("r", PATHS("a/"), NULL, ". g b b/f b/c b/c/h");
    check("r", PATHS("a"), NULL, "a a/g a/b a/b/f a/b/c a/b/c/h");
    check("r", PATHS("a/b/c"), NULL, "c c/h");
    check("d", PATHS(""), NULL, ". foo-bar top -a -e -foo.bar -foo");
    check("d", PATHS("a"), NULL, "-a");
    check("d", PATHS("a/"), NULL, ". g -b");
    check("", PATHS("a/"), NULL, "g");
    check("r", PATHS("foo*"), NULL, "foo-bar foo.bar foo.bar/x foo foo/x");
    check("", PATHS("a/?"), NULL, "g");
    check("r", PATHS("./a/./b//"), NULL, ". f c c/h");
    check("r", PATHS("a"), "- c/", "a a/g a/b a/b/f");
    check("r", PATHS("a"), "- /a", "");
    check("r", PATHS("top"), NULL, "top");
    for (const char *const *p =
             PATHS("none", "a/none", "../a", "a/../e", "a*/g", "foo*/", "top/", "to");
         *p != NULL; p++) {
        check("r", PATHS(*p), NULL, "");
    }
}

static void relative(void **state)
{
    (void)state;
    check("rR", PATHS("a/b"), NULL, "-a a/b a/b/f a/b/c a/b/c/h");
    check("rR", PATHS("a/b/"), NULL, "-a a/b a/b/f a/b/c a/b/c/h");
    check("rR", PATHS("a/./b"), NULL, "b b/f b/c b/c/h");
    check("rR", PATHS("a/./"), NULL, ". g b b/f b/c b/c/h");
    check("dR", PATHS("a/b"), NULL, "-a -a/b");
    check("R", PATHS("a/b/f"), NULL, "-a -a/b a/b/f");
    check("rR", PATHS("a/b/f", "top"), NULL, "top -a -a/b a/b/f");
    check("rR", PATHS("a/b/f", "a"), NULL, "a a/g a/b a/b/f a/b/c a/b/c/h");
    check("rR", PATHS("a/b/?"), NULL, "-a -a/b a/b/f a/b/c a/b/c/h");
    check("rR", PATHS(""), "- a/", ". foo-bar top e e/g foo.bar foo.bar/x foo foo/x");
}

static void several(void **state)
{
    (void)state;
    check("r", PATHS("a", "e"), NULL, "a a/g a/b a/b/f a/b/c a/b/c/h e e/g");
    check("r", PATHS("e", "a/b/c"), NULL, "c c/h e e/g");
    check("r", PATHS("a/", "e/"), NULL, ". g b b/f b/c b/c/h");
    check("", PATHS("top", "none", "a/b/f"), NULL, "f top");
    check("r", PATHS("a", "a", "a/b", "a"), NULL, "a a/g a/b a/b/f a/b/c a/b/c/h b b/f b/c b/c/h");
}

/* Names of a list below `base`; those that are not there are told between '!' and its reason's
 * number. */
static void names(const char *letters, const char *base, const char *const *name, const char *want)
{
    struct file_list *l = small_list();
    struct client_options o = {.folders = strchr(letters, 'r') != NULL ? FOLDERS_ENTERED
                                                                       : FOLDERS_THEMSELVES,
                               .relative = strchr(letters, 'R') != NULL};
    static const struct client_options plain = {.relative = false};
    struct filter f = {.count = 0};
    struct ask b;
    struct budget budget = {.max = 0};
    struct view v;
    char got[500];

    view_init(&v, l, &budget);
    assert_int_equal(ask_path(slice_str(base), &plain, &b, NULL), 0);
    for (; *name != NULL; name++) {
        struct err e = {.code = 0};
        struct ask a;
        int rc = ask_name(&b, slice_str(*name), &o, &a, &e);
        rc = rc != 0 ? rc : view_add_name(&v, &a, &o, &f, &e);
        if (rc != 0) {
            assert_non_null(strstr(e.text, want));
            assert_int_equal(rc, strstr(want, "(2)") != NULL ? E_NOTFOUND : E_INVALID);
        }
    }
    assert_int_equal(view_settle(&v, NULL), 0);
    tell(&v, got, sizeof got);
    if (want[strlen(want) - 1] != ')') {
        assert_string_equal(got, want);
    } else {
        assert_string_equal(got, "");
    }
    view_fini(&v);
    filter_fini(&f);
    list_free(&l);
}

/* As the installed daemon tells them, see tests/system/test_rsync_names.py. */
static void of_a_list(void **state)
{
    char long_name[400];

    (void)state;
    names("R", "", PATHS("top", "a/b/f", "a/g"), "top -a a/g -a/b a/b/f");
    names("R", "a", PATHS("b/f", "../../g"), "g -b b/f");
    names("R", "", PATHS("a", "a/"), "a a/g -a/b");
    names("rR", "", PATHS("a/b/c", "a", "a/b"), "a a/g a/b a/b/f a/b/c a/b/c/h");
    names("R", "", PATHS("./top"), "-. top");
    names("R", "a/", PATHS("./b/f"), "-. -b b/f");
    names("R", "", PATHS(".//./top", "./a/./g"), "g top");
    names("R", "", PATHS("a/./b/f", "e/./g", "top"), "g top -b b/f");
    names("R", "", PATHS("top/", "/top", "//a//b/f", "a/../top"), "top -a -a/b a/b/f");
    names("R", "", PATHS("a/./../../e/g"), "-e e/g");
    names("", "", PATHS("a/b/f", "top/", "a/g/"), "f g top");
    names("r", "", PATHS("a/b/", "top/./"), ". f top c c/h");
    names("R", "", PATHS("."), ". foo-bar top -a -e -foo.bar -foo");
    names("R", "", PATHS("foo*", "none", "a/none/x", "topper"), "No such file or directory (2)");
    names("R", "a", PATHS("top", "e/g"), "No such file or directory (2)");
    names("R", "", PATHS("top/x", "a/g/x/"), "Not a directory (20)");
    memset(long_name, 'n', sizeof long_name);
    long_name[sizeof long_name - 1] = '\0';
    names("R", "", PATHS(long_name), "File name too long (36)");
}

/* Whatever many names there are, and whatever they tell, what is kept has a bound. */
static void names_again_and_again(void **state)
{
    static const char *const name[] = {"a/", "a/b/", "./a/b/f", "a/./b/", "a/b/./c/", "e/g"};
    struct file_list *l = small_list();
    struct client_options o = {.folders = FOLDERS_ENTERED, .relative = true};
    struct filter f = {.count = 0};
    struct ask base, a;
    struct budget budget = {.max = 0};
    struct view v;

    (void)state;
    view_init(&v, l, &budget);
    assert_int_equal(ask_path(SLICE(""), &o, &base, NULL), 0);
    for (size_t i = 0; i < 20000; i++) {
        assert_int_equal(ask_name(&base, slice_str(name[i % ARRAY_LEN(name)]), &o, &a, NULL), 0);
        assert_int_equal(view_add_name(&v, &a, &o, &f, NULL), 0);
        assert_true(v.count <= 8192 + 4 * list_count(l));
    }
    assert_int_equal(view_settle(&v, NULL), 0);
    assert_int_equal(v.count, 15);
    view_fini(&v);
    list_free(&l);
}

static void again_and_again(void **state)
{
    struct file_list *l = small_list();
    struct client_options o = {.folders = FOLDERS_ENTERED};
    struct filter f = {.count = 0};
    struct ask a;
    struct budget budget = {.max = 0};
    struct view v;
    int rc = 0;

    (void)state;
    view_init(&v, l, &budget);
    for (int i = 0; i < 1000 && rc == 0; i++) {
        static const char *const paths[] = {"", "a", "a/b", "a/b/c"};
        assert_int_equal(ask_path(slice_str(paths[i % 4]), &o, &a, NULL), 0);
        rc = view_add(&v, &a, &o, &f, NULL);
        assert_true(v.count <= 3 * list_count(l));
    }
    view_fini(&v);
    list_free(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_path),
        cmocka_unit_test(relative),
        cmocka_unit_test(several),
        cmocka_unit_test(of_a_list),
        cmocka_unit_test(names_again_and_again),
        cmocka_unit_test(again_and_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
