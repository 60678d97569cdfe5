/* Which files of a revision patterns choose. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/hub/prefetch.h"

static bool chooses(const char *include, const char *exclude, const char *path)
{
    struct slice in = slice_str(include), ex = slice_str(exclude);
    struct prefetch_params w = {
        .include = &in, .includes = in.p != NULL, .exclude = &ex, .excludes = ex.p != NULL};

    return prefetch_chooses(&w, slice_str(path));
}

static void patterns(void **state)
{
    (void)state;
    assert_true(chooses(NULL, NULL, "a/b.bin"));
    assert_true(chooses("*.bin", NULL, "a/b.bin")); /* '*' crosses '/' */
    assert_false(chooses("*.json", NULL, "a/b.bin"));
    assert_true(chooses("a/", NULL, "a/b/c.bin")); /* a folder is all below it */
    assert_false(chooses("a/", NULL, "ab/c.bin"));
    assert_false(chooses(NULL, "a/*", "a/b.bin"));
    assert_false(chooses("*.bin", "*/b.*", "a/b.bin"));
    assert_true(chooses("model-0000[12]-?.bin", NULL, "model-00002-x.bin"));
    assert_false(chooses("model-0000[12]-?.bin", NULL, "model-00003-x.bin"));
    assert_false(chooses("*.bin", NULL, ""));
}

static void long_ones(void **state)
{
    char pattern[2 * PREFETCH_PATTERN_BYTES + 1];

    (void)state;
    memset(pattern, 'a', sizeof pattern - 1);
    pattern[sizeof pattern - 1] = '\0';
    assert_false(chooses(pattern, NULL, "a"));
    memset(pattern, '*', sizeof pattern - 1);
    assert_true(chooses(pattern, NULL, "a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(patterns), cmocka_unit_test(long_ones)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
