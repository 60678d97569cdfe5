/* Which of a Release's files are wanted. */
#include "server/sync/debian/suite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static bool wants(const struct sync_conf *c, const char *path)
{
    const struct release r = {.components = SLICE("main contrib non-free"),
                              .architectures = SLICE("amd64 arm64 i386")};

    return suite_wants(c, &r, slice_str(path));
}

static void all_without_settings(void **state)
{
    const struct sync_conf c = {.components_count = 0};

    (void)state;
    assert_true(wants(&c, "main/binary-amd64/Packages.xz"));
    assert_true(wants(&c, "non-free/binary-all/Packages"));
    assert_true(wants(&c, "contrib/source/Sources.gz"));
    assert_true(wants(&c, "main/Contents-arm64.gz"));
    assert_true(wants(&c, "main/i18n/Translation-en.bz2"));
    assert_true(wants(&c, "main/dep11/Components-i386.yml.gz"));
    assert_true(wants(&c, "main/cnf/Commands-amd64.xz"));
    assert_false(wants(&c, "main/binary-mips/Packages.xz"));
    assert_false(wants(&c, "universe/binary-amd64/Packages.xz"));
    assert_false(wants(&c, "main/debian-installer/binary-amd64/Packages.xz"));
    assert_false(wants(&c, "main/binary-amd64/Packages.diff/Index"));
    assert_false(wants(&c, "mainly/binary-amd64/Packages"));
    assert_false(wants(&c, "main"));
    assert_false(wants(&c, "main/"));
    assert_false(wants(&c, ""));
}

static void what_settings_name(void **state)
{
    static const char *const components[] = {"main"};
    static const char *const architectures[] = {"amd64"};
    const struct sync_conf c = {.components = components,
                                .components_count = 1,
                                .architectures = architectures,
                                .architectures_count = 1};

    (void)state;
    assert_true(wants(&c, "main/binary-amd64/Packages.xz"));
    assert_true(wants(&c, "main/binary-all/Packages.xz"));
    assert_true(wants(&c, "main/Contents-amd64.gz"));
    assert_false(wants(&c, "main/binary-arm64/Packages.xz"));
    assert_false(wants(&c, "main/source/Sources.xz"));
    assert_false(wants(&c, "contrib/binary-amd64/Packages.xz"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_without_settings),
        cmocka_unit_test(what_settings_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
