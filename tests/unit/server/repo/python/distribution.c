#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/repo/python/distribution.h"

static bool fits(const char *tags, const char *python, const char *platform)
{
    struct arena a = {0};
    struct distribution d;
    struct pyenv env;
    struct slice file = arena_fmt(&a, "Foo_Bar-1.0-%s.whl", tags);
    bool out;

    assert_true(pyenv_init(&env, python, platform));
    if (!distribution_parse(file, SLICE("foo-bar"), &a, &d)) {
        fail_msg("%s is no wheel", file.p);
    }
    out = distribution_fits(&d, &env);
    arena_fini(&a);
    return out;
}

static void test_tags(void **state)
{
    static const char linux_[] = "manylinux_2_28_x86_64";

    (void)state;
    assert_true(fits("py3-none-any", "3.11", linux_));
    assert_true(fits("py2.py3-none-any", "3.11", linux_));
    assert_false(fits("py2-none-any", "3.11", linux_));
    assert_true(fits("py310-none-any", "3.11", linux_));
    assert_false(fits("py312-none-any", "3.11", linux_));
    assert_true(fits("cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64", "3.11", linux_));
    assert_false(fits("cp312-cp312-manylinux_2_17_x86_64", "3.11", linux_));
    assert_false(fits("cp310-cp310-manylinux_2_17_x86_64", "3.11", linux_));
    assert_true(fits("cp38-abi3-manylinux_2_17_x86_64", "3.11", linux_));
    assert_false(fits("cp312-abi3-manylinux_2_17_x86_64", "3.11", linux_));
    assert_false(fits("cp311-cp311t-manylinux_2_17_x86_64", "3.11", linux_));
    assert_true(fits("cp37-cp37m-manylinux1_x86_64", "3.7", linux_));
    assert_false(fits("cp311-cp311-manylinux_2_31_x86_64", "3.11", linux_));
    assert_false(fits("cp311-cp311-manylinux_2_17_aarch64", "3.11", linux_));
    assert_false(fits("cp311-cp311-musllinux_1_1_x86_64", "3.11", linux_));
    assert_true(fits("1-cp311-cp311-linux_x86_64", "3.11", linux_)); /* a build number */
    assert_true(fits("py3-none-manylinux_2_5_x86_64", "3.11", "manylinux2014_x86_64"));
    assert_true(fits("cp311-cp311-musllinux_1_1_x86_64", "3.11", "musllinux_1_2_x86_64"));
    assert_true(fits("cp311-cp311-macosx_10_9_universal2", "3.11", "macosx_11_0_arm64"));
    assert_false(fits("cp311-cp311-macosx_12_0_arm64", "3.11", "macosx_11_0_arm64"));
    assert_true(fits("cp311-cp311-win_amd64", "3.11", "win_amd64"));
    assert_false(fits("cp311-cp311-win32", "3.11", "win_amd64"));
    assert_false(fits("pp311-pypy311_pp73-manylinux_2_17_x86_64", "3.11", linux_));
}

static void test_names(void **state)
{
    static const struct {
        const char *file, *version;
    } good[] = {{"foo_bar-1.0.tar.gz", "1.0"},
                {"foo-bar-1.0.zip", "1.0"},
                {"Foo.Bar-1.0+cu121.tar.gz", "1.0+cu121"},
                {"foo-bar-1.0-rc1.tar.gz", "1.0-rc1"},
                {"foo_bar-1!2-py3-none-any.whl", "1!2"},
                {"foo_bar-1.0+cu121-py3-none-any.whl", "1.0+cu121"}};
    static const char *const bad[] = {"foo-1.0.tar.gz",
                                      "foo_bar.tar.gz",
                                      "foo_bar-x.tar.gz",
                                      "foo_bar-1.0.exe",
                                      "foo_bar-1.0.whl",
                                      "foo_bar-1.0-py3-none.whl",
                                      "foo_bar-1.0-1-2-py3-none-any.whl",
                                      "baz-1.0-py3-none-any.whl",
                                      ""};
    struct arena a = {0};
    struct distribution d;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_true(distribution_parse(slice_str(good[i].file), SLICE("foo-bar"), &a, &d));
        assert_true(slice_eqs(d.version_text, good[i].version));
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (distribution_parse(slice_str(bad[i]), SLICE("foo-bar"), &a, &d)) {
            fail_msg("%s", bad[i]);
        }
    }
    arena_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tags),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
