#include "tests/harness/ask.h"

static int open_it(const char *name, const char *protocol, const char *origin, struct err *e)
{
    struct repo_conf conf = {
        .name = name, .protocol = protocol, .origin.url = origin, .source = "mirrord.conf:7"};
    struct repo *r = NULL;
    int rc = repo_open(&conf, &r, e);

    assert_true((rc == 0) == (r != NULL));
    repo_close(&r);
    return rc;
}

static void protocols_by_name(void **state)
{
    (void)state;
    assert_string_equal(repo_ops_find("pypi")->name, "pypi");
    assert_null(repo_ops_find("pypy"));
    assert_null(repo_ops_find(NULL));
    assert_int_equal(open_it("a", "generic", "https://a.example/", NULL), 0);
    assert_int_equal(open_it("a", "hosted", NULL, NULL), 0);
}

static void wrong_sections_name_their_place(void **state)
{
    static const struct {
        const char *name, *protocol, *origin, *says;
    } bad[] = {
        {"a", "nope", NULL, "unknown protocol \"nope\""},
        {"a", "generic", NULL, "needs an origin"},
        {"a", "pypi", NULL, "needs an origin"},
        {"a", "conda", NULL, "needs an origin"},
        {"a", "hosted", "https://a.example/", "remove the setting"},
        {"a", "generic", "a.example", "mirrord.conf:7"},
        {"metrics", "hosted", NULL, "reserved"},
        {"v2", "hosted", NULL, "reserved"},
        {"-", "hosted", NULL, "begin with"},
        {"", "hosted", NULL, "begin with"},
        {"a/b", "hosted", NULL, "letters"},
        {"..", "hosted", NULL, "begin with"},
        {"0123456789012345678901234567890123456789012345678901234567890123", "hosted", NULL,
         "1 to 63"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err e = {0};
        assert_int_not_equal(open_it(bad[i].name, bad[i].protocol, bad[i].origin, &e), 0);
        assert_non_null(strstr(e.text, bad[i].says));
        assert_non_null(strstr(e.text, "mirrord.conf:7"));
    }
}

TESTS(cmocka_unit_test(protocols_by_name), cmocka_unit_test(wrong_sections_name_their_place))
