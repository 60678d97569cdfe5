#include "server/fetch/bearer.h"

#include "tests/harness/ask.h"

static bool admits(const char *origin, const char *const *hosts, size_t count, const char *realm)
{
    struct origin_settings set = {
        .url = origin, .hosts = hosts, .hosts_count = count, .hosts_set = count > 0};
    struct origin *o;
    struct err e = {0};
    int rc;

    assert_int_equal(origin_new("hub", &set, &o, NULL), 0);
    rc = bearer_admits(o, slice_str(realm), &e);
    assert_true(rc == 0 || (rc == E_DENIED && e.text[0] != '\0'));
    origin_free(&o);
    return rc == 0;
}

static void who_may_give_tokens(void **state)
{
    static const struct {
        const char *origin, *realm;
        bool ok;
    } row[] = {
        {"https://registry-1.hub.example/", "https://auth.hub.example/token", true},
        {"https://hub.example/", "https://auth.hub.example/token", true},
        {"https://hub.example/", "https://hub.example/token", true},
        {"https://hub.example/", "https://HUB.example:443/token", true},
        {"https://hub.example:5000/", "https://auth.hub.example:5001/token", true},
        {"http://hub.example/", "http://auth.hub.example/token", true},
        {"http://hub.example/", "https://auth.hub.example/token", true},
        {"http://127.0.0.1:5000/", "http://127.0.0.1:5000/token", true},
        {"https://hub.example/", "http://hub.example/token", false},
        {"https://hub.example/", "https://evil.example/token", false},
        {"https://hub.example/", "https://nothub.example/token", false},
        {"https://hub.example/", "https://hub.example.evil/token", false},
        {"https://hub.co.uk/", "https://evil.co.uk/token", false},
        {"https://reg.hub.co.uk/", "https://auth.hub.co.uk/token", true},
        {"http://127.0.0.1:5000/", "http://127.0.0.1:5001/token", false},
        {"http://10.0.0.1/", "http://11.0.0.1/token", false},
        {"http://localhost/", "http://localhost:81/token", false},
        {"https://hub.example/", "https://u:p@hub.example/token", false},
        {"https://hub.example/", "ftp://hub.example/token", false},
        {"https://hub.example/", "/token", false},
        {"https://hub.example/", "", false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        if (admits(row[i].origin, NULL, 0, row[i].realm) != row[i].ok) {
            fail_msg("%s at %s", row[i].realm, row[i].origin);
        }
    }
}

static void hosts_that_are_written_are_all(void **state)
{
    static const char *const hosts[] = {"tokens.other", "127.0.0.1:5001"};

    (void)state;
    assert_true(admits("https://hub.example/", hosts, 2, "https://tokens.other/t"));
    assert_true(admits("http://127.0.0.1:5000/", hosts, 2, "http://127.0.0.1:5001/t"));
    assert_true(admits("https://hub.example/", hosts, 2, "https://hub.example/t"));
    assert_false(admits("https://hub.example/", hosts, 2, "https://auth.hub.example/t"));
}

static void answers(void **state)
{
    static const struct {
        const char *json, *token;
        uint64_t good_s;
    } row[] = {
        {"{\"token\":\"abc\"}", "abc", 60},
        {"{\"token\":\"abc\",\"expires_in\":300}", "abc", 300},
        {"{\"access_token\":\"x.y-z\",\"expires_in\":299.5}", "x.y-z", 299},
        {"{\"token\":\"\",\"access_token\":\"d\",\"expires_in\":0}", "d", 60},
        {"{\"token\":\"a\",\"expires_in\":-5}", "a", 60},
        {"{\"token\":\"a\",\"expires_in\":1e300}", "a", 86400},
        {"{\"token\":\"a\",\"expires_in\":\"300\"}", "a", 60},
        {"{\"token\":\"a b\"}", NULL, 0},
        {"{\"token\":\"a\\r\\nX: y\"}", NULL, 0},
        {"{\"token\":5}", NULL, 0},
        {"{}", NULL, 0},
        {"[]", NULL, 0},
        {"<html>", NULL, 0},
        {"", NULL, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct arena a = {0};
        struct slice token;
        uint64_t good_s;
        int rc = bearer_answer(slice_str(row[i].json), &a, &token, &good_s, NULL);
        if (row[i].token == NULL) {
            assert_int_equal(rc, E_PROTOCOL);
        } else {
            assert_int_equal(rc, 0);
            assert_slice(token, row[i].token);
            assert_int_equal(good_s, row[i].good_s);
        }
        arena_fini(&a);
    }
}

TESTS(cmocka_unit_test(who_may_give_tokens), cmocka_unit_test(hosts_that_are_written_are_all),
      cmocka_unit_test(answers))
