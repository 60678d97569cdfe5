#include "server/fetch/challenge.h"

#include "tests/harness/ask.h"

static void check(const char *field, const char *realm, const char *service, const char *scope)
{
    struct arena a = {0};
    struct challenge c;
    bool found = challenge_parse(slice_str(field), &a, &c);

    if (found != (realm != NULL)) {
        fail_msg("%s", field);
    }
    if (found) {
        assert_slice(c.realm, realm);
        assert_slice(c.service, service);
        assert_slice(c.scope, scope);
    }
    arena_fini(&a);
}

static void what_registries_say(void **state)
{
    (void)state;
    check(
        "Bearer realm=\"https://auth.example/token\",service=\"reg\",scope=\"repository:a/b:pull\"",
        "https://auth.example/token", "reg", "repository:a/b:pull");
    check("bearer REALM=\"x\" , Service=reg", "x", "reg", "");
    check("Basic realm=\"b\", Bearer realm=\"x\",service=\"y\"", "x", "y", "");
    check(
        "Bearer realm=\"x\",error=\"insufficient_scope\",scope=\"a:b:c d:e:f\", Basic realm=\"z\"",
        "x", "", "a:b:c d:e:f");
    check("Negotiate YWJj==, Bearer realm=\"x\"", "x", "", "");
    check("Bearer realm=\"a \\\"quoted\\\" one, with, commas\"", "a \"quoted\" one, with, commas",
          "", "");
    check("Bearer realm=\"first\",realm=\"second\"", "first", "", "");
}

static void what_is_none(void **state)
{
    (void)state;
    check("", NULL, "", "");
    check("Basic realm=\"x\"", NULL, "", "");
    check("Bearer", NULL, "", "");
    check("Bearer realm=\"\"", NULL, "", "");
    check("Bearer service=\"x\", Basic realm=\"y\"", NULL, "", "");
    check("Bearer realm=\"unfinished", NULL, "", "");
    check("realm=\"x\"", NULL, "", "");
    check(",,,;;;\"\"== = ,", NULL, "", "");
}

TESTS(cmocka_unit_test(what_registries_say), cmocka_unit_test(what_is_none))
