#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/repo/python/version.h"

static struct pyversion v(const char *text)
{
    struct pyversion out;

    if (!pyversion_parse(slice_str(text), &out)) {
        fail_msg("%s is no version", text);
    }
    return out;
}

static void test_order(void **state)
{
    static const char *const rising[] = {
        "0.9",         "1.0.dev1",       "1.0a1.dev2",  "1.0a1",      "1.0a2.post1.dev1",
        "1.0a2.post1", "1.0b1",          "1.0rc1.dev1", "1.0rc1",     "1.0",
        "1.0+abc",     "1.0+abc.5",      "1.0+abd",     "1.0+5",      "1.0+10",
        "1.0+10.0",    "1.0.post0.dev1", "1.0.post1",   "1.0.1.dev3", "1.0.1",
        "1.10",        "2024.1",         "1!0.1",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rising); i++) {
        for (size_t k = 0; k < ARRAY_LEN(rising); k++) {
            struct pyversion a = v(rising[i]), b = v(rising[k]);
            int c = pyversion_cmp(&a, &b);
            if ((c > 0) - (c < 0) != (i > k) - (i < k)) {
                fail_msg("%s and %s: %d", rising[i], rising[k], c);
            }
        }
    }
}

static void test_normal_form(void **state)
{
    static const char *const same[][2] = {
        {"1.0", "1.0"},
        {" v1.0-ALPHA_2 ", "1.0a2"},
        {"1.0c3", "1.0rc3"},
        {"1.0-preview", "1.0rc0"},
        {"1.0-1", "1.0.post1"},
        {"1.0rev4", "1.0.post4"},
        {"1.0.R", "1.0.post0"},
        {"1.0DEV", "1.0.dev0"},
        {"0!01.02", "1.2"},
        {"1.0+Ubuntu-01_X", "1.0+ubuntu.1.x"},
        {"1.0a.dev1", "1.0a0.dev1"},
        {"7!1b-2-3.dev4", "7!1b2.post3.dev4"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(same); i++) {
        struct pyversion a = v(same[i][0]);
        struct buf b = BUF_INIT(1000);
        pyversion_write(&a, &b);
        assert_string_equal(buf_cstr(&b), same[i][1]);
        buf_free(&b);
    }
}

static void test_not_versions(void **state)
{
    static const char *const none[] = {
        "",     "x",        "1.",     ".1",         "1..2",
        "1.0+", "1.0+a..b", "1.0+a.", "1.0 2",      "1.0aa",
        "1!",   "!1",       "v",      "1.0.post.x", "99999999999999999999999",
        "1.0-", "1a1a1",    "1.0.*"};
    struct pyversion out;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        if (pyversion_parse(slice_str(none[i]), &out)) {
            fail_msg("%s is a version", none[i]);
        }
    }
}

static bool ask(const char *specs, const char *version)
{
    struct arena a = {0};
    struct pyspecs s;
    struct pyversion x = v(version);
    struct err e = {0};
    bool out;

    if (pyspecs_parse(slice_str(specs), &a, &s, &e) != 0) {
        fail_msg("%s: %s", specs, e.text);
    }
    out = pyspecs_hold(&s, &x, slice_str(version));
    arena_fini(&a);
    return out;
}

static void test_specifiers(void **state)
{
    static const struct {
        const char *specs, *version;
        bool yes;
    } all[] = {
        {"", "1.0", true},
        {">=1.0, <2, !=1.5.*", "1.4.9", true},
        {">=1.0, <2, !=1.5.*", "1.5.1", false},
        {"~=3.2", "3.9", true},
        {"~=3.2", "4.0", false},
        {"~=3.2.1", "3.3", false},
        {"~=3.2.1", "3.2.7", true},
        {"~=2.2.post3", "2.2.post3", true},
        {"~=2.2.post3", "2.2", false},
        {"==1.1", "1.1.0", true},
        {"==1.1", "1.1.post1", false},
        {"==1.1", "1.1+local", true},
        {"==1.1+local", "1.1", false},
        {"==1.1.*", "1.1.post1", true},
        {"==1.1.*", "1.1a1", true},
        {"==1.1.0.*", "1.1", true},
        {"==1.1.*", "1.11", false},
        {"!=1.1", "1.1+x", false},
        {"<1.1", "1.1rc1", false},
        {"<1.1rc2", "1.1rc1", true},
        {"<1.1", "1.1.dev1", false},
        {">1.1", "1.1.post1", false},
        {">1.1.post1", "1.1.post2", true},
        {">1.1", "1.1+local", false},
        {">1.1rc1", "1.1.post1", true},
        {">1.1rc1", "1.1rc1.post1", false},
        {">1.1rc1", "1.1+local", true},
        {">1.1rc1", "1.1rc1+local", false},
        {">1.1.dev1", "1.1.post1", true},
        {">0b0.dev2", "0rc2.post2.dev2+1.0", true},
        {"<1.1.post1", "1.1.post1.dev1", false},
        {"<1.1.post1", "1.1rc1", true},
        {">=1.1", "1.1+local", true},
        {"<=1.1", "1.1+local", true},
        {"===1.0.0", "1.0", false},
        {"===1.0.0", "1.0.0", true},
        {">=1,", "2", true},
    };
    struct arena a = {0};
    struct pyspecs s;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (ask(all[i].specs, all[i].version) != all[i].yes) {
            fail_msg("%s of \"%s\"", all[i].version, all[i].specs);
        }
    }
    assert_int_equal(pyspecs_parse(SLICE("1.0"), &a, &s, NULL), E_INVALID);
    assert_int_equal(pyspecs_parse(SLICE(">=1.*"), &a, &s, NULL), E_INVALID);
    assert_int_equal(pyspecs_parse(SLICE("~=1"), &a, &s, NULL), E_INVALID);
    assert_int_equal(pyspecs_parse(SLICE(">=1.0+x"), &a, &s, NULL), E_INVALID);
    assert_int_equal(pyspecs_parse(SLICE(",>=1"), &a, &s, NULL), E_INVALID);
    assert_int_equal(pyspecs_parse(SLICE("==1.0"), &a, &s, NULL), 0);
    assert_true(pyspecs_pin(&s) && !pyspecs_name_pre(&s));
    assert_int_equal(pyspecs_parse(SLICE(">=1.0rc1"), &a, &s, NULL), 0);
    assert_true(!pyspecs_pin(&s) && pyspecs_name_pre(&s));
    arena_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_normal_form),
        cmocka_unit_test(test_not_versions),
        cmocka_unit_test(test_specifiers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
