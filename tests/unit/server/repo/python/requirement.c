#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/repo/python/marker.h"
#include "server/repo/python/metadata.h"
#include "server/repo/python/requirement.h"

static void test_requirement(void **state)
{
    struct arena a = {0};
    struct requirement r;

    (void)state;
    assert_int_equal(
        requirement_parse(SLICE("  Torch_Vision.X [Foo_A, bar] (>=1.0,<2) ; python_version < '4' "),
                          &a, &r, NULL),
        0);
    assert_true(slice_eqs(r.name, "torch-vision-x") && r.extras == 2);
    assert_true(slice_eqs(r.extra[0], "foo-a") && slice_eqs(r.extra[1], "bar"));
    assert_int_equal(r.specs.count, 2);
    assert_true(slice_eqs(r.marker, "python_version < '4'"));
    assert_int_equal(requirement_parse(SLICE("a"), &a, &r, NULL), 0);
    assert_true(r.specs.count == 0 && r.marker.p == NULL && slice_eqs(r.text, "a"));
    assert_int_equal(requirement_parse(SLICE("a>=1"), &a, &r, NULL), 0);
    assert_int_equal(requirement_parse(SLICE("a[]==1"), &a, &r, NULL), 0);
    assert_int_equal(
        requirement_parse(SLICE("a @ https://x.example/a;b.whl ; os_name == 'nt'"), &a, &r, NULL),
        0);
    assert_true(slice_eqs(r.url, "https://x.example/a;b.whl") &&
                slice_eqs(r.marker, "os_name == 'nt'"));
    assert_int_equal(requirement_parse(SLICE(""), &a, &r, NULL), E_INVALID);
    assert_int_equal(requirement_parse(SLICE("-a"), &a, &r, NULL), E_INVALID);
    assert_int_equal(requirement_parse(SLICE("a b"), &a, &r, NULL), E_INVALID);
    assert_int_equal(requirement_parse(SLICE("a[x"), &a, &r, NULL), E_INVALID);
    assert_int_equal(requirement_parse(SLICE("a @ "), &a, &r, NULL), E_INVALID);
    assert_int_equal(requirement_parse(SLICE("a >= x"), &a, &r, NULL), E_INVALID);
    arena_fini(&a);
}

static bool holds(const char *marker, const char *extra)
{
    struct pyenv env;
    struct err e = {0};
    bool out = false;

    assert_true(pyenv_init(&env, "3.11", "manylinux_2_28_x86_64"));
    if (marker_eval(slice_str(marker), &env, slice_str(extra), &out, &e) != 0) {
        fail_msg("%s: %s", marker, e.text);
    }
    return out;
}

static void test_marker(void **state)
{
    static const struct {
        const char *text, *extra;
        bool yes;
    } all[] = {
        {"python_version >= '3.9'", "", true}, /* as versions: 3.11 is not 3.1 */
        {"python_version < \"3.2\"", "", false},
        {"'3.12' > python_version", "", true},
        {"sys_platform == 'linux' and platform_machine == 'x86_64'", "", true},
        {"os_name == 'nt' or sys_platform == 'darwin'", "", false},
        {"os_name == 'nt' or sys_platform == 'darwin' or os_name == 'posix'", "", true},
        {"os_name == 'nt' and sys_platform == 'x' or os_name == 'posix'", "", true},
        {"os_name == 'nt' and (sys_platform == 'x' or os_name == 'posix')", "", false},
        {"extra == 'Test_X'", "test-x", true},
        {"extra == 'test'", "", false},
        {"extra != 'test'", "", true},
        {"platform_machine in 'x86_64 aarch64'", "", true},
        {"platform_machine not in 'x86_64 aarch64'", "", false},
        {"platform_release >= '20.0'", "", true},
        {"os.name=='posix'", "", true},
        {"platform_python_implementation != 'PyPy'", "", true},
        {"python_full_version < '3.11.1'", "", true},
        {"python_version in '3.11, 3.12'", "", true},
        {"python_version ~= '3.7'", "", true},
    };
    static const char *const wrong[] = {"",
                                        "x",
                                        "os_name",
                                        "os_name ==",
                                        "os_name == 'x",
                                        "(os_name == 'x'",
                                        "os_name == 'x')",
                                        "os_name == 'x' and",
                                        "nothing == 'x'",
                                        "os_name = 'x'",
                                        "os_name not 'x'",
                                        "((((((((((((((((((((((((((((((((((((((((os_name == 'x'"};
    struct pyenv env;
    bool out;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (holds(all[i].text, all[i].extra) != all[i].yes) {
            fail_msg("%s", all[i].text);
        }
    }
    assert_true(pyenv_init(&env, "3.11", "win_amd64"));
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        if (marker_eval(slice_str(wrong[i]), &env, SLICE(""), &out, NULL) == 0) {
            fail_msg("%s is a marker", wrong[i]);
        }
    }
    assert_false(pyenv_init(&env, "2.7", "win_amd64"));
    assert_false(pyenv_init(&env, "3.11", "amiga"));
}

struct seen {
    char lines[10][64];
    size_t n, odd;
};

static int on_line(void *arg, struct slice line, struct err *e)
{
    struct seen *s = arg;

    (void)e;
    assert_true(s->n < 10 && line.n < 64);
    memcpy(s->lines[s->n], line.p, line.n);
    s->lines[s->n++][line.n] = '\0';
    return 0;
}

static void on_odd(void *arg, struct slice line)
{
    (void)line;
    ((struct seen *)arg)->odd++;
}

static void test_file(void **state)
{
    struct seen s = {0};
    struct requirements_events ev = {on_line, on_odd, &s};
    const char *text = "# all\n\na==1 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\r\n"
                       "b[x]>=2  # why\n--index-url https://x.example\n"
                       "-e .\nc @ https://x.example/c#egg=c\n./local\nd";

    (void)state;
    assert_int_equal(requirements_read(slice_str(text), "x", &ev, NULL), 0);
    assert_int_equal(s.n, 4);
    assert_string_equal(s.lines[0], "a==1");
    assert_string_equal(s.lines[1], "b[x]>=2");
    assert_string_equal(s.lines[2], "c @ https://x.example/c#egg=c");
    assert_string_equal(s.lines[3], "d");
    assert_int_equal(s.odd, 3);
    assert_int_equal(requirements_read(SLICE("-r /nowhere/at/all\n"), "x", &ev, NULL), E_NOTFOUND);
}

static void test_metadata(void **state)
{
    struct seen s = {0};
    struct metadata_events ev = {on_line, &s};
    struct slice name, version;
    const char *text =
        "Metadata-Version: 2.1\r\nName: Foo\r\nversion: 1.0\r\nRequires-Dist: a (>1)\r\n"
        "requires-dist: b;\r\n  extra == 'x'\r\nDescription: text\r\n        more: text\r\n"
        "Requires-Dist: c\r\n\r\nRequires-Dist: not\r\n";

    (void)state;
    assert_int_equal(metadata_read(slice_str(text), &ev, &name, &version, NULL), 0);
    assert_true(slice_eqs(name, "Foo") && slice_eqs(version, "1.0"));
    assert_int_equal(s.n, 3);
    assert_string_equal(s.lines[0], "a (>1)");
    assert_string_equal(s.lines[2], "c");
    assert_int_equal(metadata_read(SLICE("<html>"), &ev, &name, &version, NULL), E_INVALID);
    assert_int_equal(metadata_read(SLICE(""), &ev, &name, &version, NULL), 0);
    assert_true(name.p == NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requirement),
        cmocka_unit_test(test_marker),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_metadata),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
