#include "tests/harness/ask.h"

static struct ask k;

static int setup(void **state)
{
    static const struct rule_conf rules[] = {
        {.pattern = "^no/",
         .class = "deny",
         .ttl_s = -1,
         .neg_ttl_s = -1,
         .stale_while_s = -1,
         .swr_s = -1,
         .sie_s = -1},
        {.pattern = "\\.tar\\.gz$",
         .class = "immutable",
         .ttl_s = -1,
         .neg_ttl_s = -1,
         .stale_while_s = -1,
         .swr_s = -1,
         .sie_s = -1},
    };
    struct repo_conf conf = {.name = "data",
                             .protocol = "generic",
                             .origin.url = "https://data.example/base",
                             .rules = rules,
                             .rules_count = 2,
                             .source = "test:1"};
    (void)state;
    ask_open_conf(&k, &conf);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ask_close(&k);
    return 0;
}

static void paths_keys_and_urls(void **state)
{
    static const struct {
        const char *target, *key, *url;
    } row[] = {
        {"/a/b.bin", "a/b.bin", "https://data.example/base/a/b.bin"},
        {"/", "", "https://data.example/base/"},
        {"/dir/", "dir/", "https://data.example/base/dir/"},
        {"/a%2fb", "a%2Fb", "https://data.example/base/a%2Fb"},
        {"/%61", "a", "https://data.example/base/a"},
        {"/g++_1%3a2~3.deb", "g++_1:2~3.deb", "https://data.example/base/g%2B%2B_1:2~3.deb"},
        {"/g%2b%2B.deb", "g++.deb", "https://data.example/base/g%2B%2B.deb"},
        {"/a?x=1&y", "a?x=1&y", "https://data.example/base/a?x=1&y"},
        {"/a?", "a?", "https://data.example/base/a?"},
        {"/a%3Fx=1", "a%3Fx=1", "https://data.example/base/a%3Fx=1"},
        {"/a%253F", "a%253F", "https://data.example/base/a%253F"},
        {"/%ff%20%22", "\xff \"", "https://data.example/base/%FF%20%22"},
        {"/a%23b", "a#b", "https://data.example/base/a%23b"},
        {"//a", "/a", "https://data.example/base//a"},
        {"/http://evil.example/x", "http://evil.example/x",
         "https://data.example/base/http://evil.example/x"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        assert_int_equal(ask(&k, METHOD_GET, row[i].target), 0);
        assert_int_equal(k.plan.kind, PLAN_LOOKUP);
        assert_slice(k.plan.lookup.key, row[i].key);
        assert_slice(k.plan.lookup.url, row[i].url);
        assert_null(k.plan.lookup.via.p);
        assert_int_not_equal(k.plan.delivery, DELIVERY_REWRITTEN);
    }
    assert_slice(k.plan.subject, "data/http://evil.example/x");
    assert_int_equal(k.plan.right, RIGHT_READ);
}

static void bad_paths(void **state)
{
    static const char *const bad[] = {"/../x",  "/a/..", "/a/./b", "/%2e%2e/x", "/a%00b",
                                      "/a%0ab", "/a%2",  "/a%zz",  "/..%2fx"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(ask(&k, METHOD_GET, bad[i]), E_INVALID);
    }
}

static void rules_and_methods(void **state)
{
    (void)state;
    assert_int_equal(ask(&k, METHOD_HEAD, "/x.tar.gz"), 0);
    assert_int_equal(k.plan.lookup.class, LOOKUP_IMMUTABLE);
    assert_int_equal(ask(&k, METHOD_GET, "/x"), 0);
    assert_int_equal(k.plan.lookup.class, LOOKUP_MUTABLE);
    assert_int_equal(ask(&k, METHOD_GET, "/n%6f/x"), 0);
    assert_int_equal(k.plan.status, 403);
    assert_int_equal(ask(&k, METHOD_PUT, "/x"), 0);
    assert_int_equal(k.plan.status, 405);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_keys_and_urls),
        cmocka_unit_test(bad_paths),
        cmocka_unit_test(rules_and_methods),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
