#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "server/gate/scope.h"

#include "common/codec/glob.h"

static bool globs(const char *glob, const char *text)
{
    return glob_match_how(slice_str(glob), slice_str(text), GLOB_STARS, NULL);
}

static void patterns(void **state)
{
    char many[2001];

    (void)state;
    assert_true(globs("*", ""));
    assert_true(globs("*", "a/b/c"));
    assert_true(globs("models/*", "models/me/x.bin"));
    assert_true(globs("models/*", "models/"));
    assert_false(globs("models/*", "models"));
    assert_false(globs("models/*", "secret/models/x"));
    assert_true(globs("a*b*c", "a--b--b--c"));
    assert_false(globs("a*b*c", "a--c--b"));
    assert_true(globs("**x", "x"));
    assert_false(globs("", "x"));
    assert_true(globs("", ""));
    assert_false(globs("a", "ab"));
    assert_true(globs("models/[x]", "models/[x]")); /* nothing else is special */
    /* Many stars against a text that almost matches must come back. */
    memset(many, 'a', sizeof(many));
    many[2000] = '\0';
    assert_false(globs("*a*a*a*a*a*a*a*a*a*a*a*b", many));
}

static void rights(void **state)
{
    struct slice x = SLICE("models/me/x");

    (void)state;
    assert_true(scope_gives(SLICE("read:models/*"), SLICE("read"), x));
    assert_false(scope_gives(SLICE("read:models/*"), SLICE("publish"), x));
    assert_true(scope_gives(SLICE("publish:models/*"), SLICE("publish"), x));
    assert_true(scope_gives(SLICE("publish:models/*"), SLICE("read"), x));
    assert_false(scope_gives(SLICE("publish:models/*"), SLICE("read"), SLICE("secret/x")));
    assert_true(scope_gives(SLICE("admin:*"), SLICE("sync"), x));
    assert_false(scope_gives(SLICE("sync:*"), SLICE("read"), x));
    assert_false(scope_gives(SLICE("*:*"), SLICE("read"), x));
}

static void reaches(void **state)
{
    static const struct {
        const char *scope, *repo, *prefix; /* NULL: not at all */
    } want[] = {
        {"read:*", "models", ""},
        {"publish:mod*", "models", ""},
        {"read:models*", "models", ""},
        {"read:models/*", "models", ""},
        {"admin:models/me/*", "models", "me/"},
        {"read:models/me/gpt/", "models", "me/gpt/"},
        {"read:models/*/gpt/*", "models", ""},
        {"read:models", "models", NULL},
        {"read:mod", "models", NULL},
        {"read:models/me/*", "model", NULL},
        {"read:models/me/*", "models2", NULL},
        {"sync:models/*", "models", NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        struct slice prefix = SLICE_NONE;
        bool yes = scope_reaches(slice_str(want[i].scope), SLICE("read"), slice_str(want[i].repo),
                                 &prefix);
        assert_int_equal(yes, want[i].prefix != NULL);
        assert_true(!yes || slice_eqs(prefix, want[i].prefix));
    }
}

static void judged(void **state)
{
    struct err e;

    (void)state;
    assert_int_equal(scope_check(SLICE("publish:models/*"), NULL), 0);
    assert_int_equal(scope_check(SLICE("write:*"), &e), E_INVALID);
    assert_string_equal(e.text, "\"write:*\" is not a scope; write a right (read, publish, sync or "
                                "admin), ':' and a pattern, such as publish:models/*");
    assert_int_equal(scope_check(SLICE("read:"), NULL), E_INVALID);
    assert_int_equal(scope_check(SLICE("read"), NULL), E_INVALID);
    assert_int_equal(scope_check(SLICE("read:a b"), NULL), E_INVALID);
    assert_int_equal(scope_check(SLICE(""), NULL), E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(patterns), cmocka_unit_test(rights),
                                       cmocka_unit_test(reaches), cmocka_unit_test(judged)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
