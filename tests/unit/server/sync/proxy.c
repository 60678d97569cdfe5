/* What a proxy is called, what it is asked, and what comes of its answers however they are cut. */
#include "server/sync/proxy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

static void names(void **state)
{
    static const struct {
        const char *text, *user, *host;
        uint16_t port;
    } good[] = {
        {"http://proxy.example:3128", NULL, "proxy.example", 3128},
        {"http://proxy.example:3128/", NULL, "proxy.example", 3128},
        {"HTTP://proxy.example", NULL, "proxy.example", 1080},
        {"proxy.example:80", NULL, "proxy.example", 80},
        {"http://me:p@ss@proxy.example:80", "me:p@ss", "proxy.example", 80},
        {"http://[2001:db8::1]:3128", NULL, "2001:db8::1", 3128},
        {"[2001:db8::1]", NULL, "2001:db8::1", 1080},
    };
    static const char *const bad[] = {
        "",   "http://",     "http://:80", "http://x:0", "http://x:65536",      "http://x:80/path",
        "x:", "http://[::1", "[::1]80",    "http://x y", "http://x\r\nHost: y", "http://[]:80",
    };
    struct proxy p;
    struct err e = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_int_equal(proxy_parse(slice_str(good[i].text), &p, &e), 0);
        assert_true(slice_eqs(p.host, good[i].host) && p.port == good[i].port);
        assert_true(slice_eq(p.user, slice_str(good[i].user)));
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(proxy_parse(slice_str(bad[i]), &p, &e), E_INVALID);
    }
    assert_int_equal(proxy_parse(SLICE("socks5://me:secret@x:1"), &p, &e), E_UNSUPPORTED);
    assert_null(strstr(e.text, "secret"));
}

static void who_goes_without(void **state)
{
    static const struct {
        const char *list, *host;
        bool avoids;
    } row[] = {
        {NULL, "a.example", false},
        {"", "a.example", false},
        {"*", "a.example", true},
        {"a.example", "A.Example", true},
        {"example", "a.example", true},
        {".example", "a.example", true},
        {"xample", "a.example", false},
        {"b.a.example", "a.example", false},
        {"x, a.example", "a.example", true},
        {"x a.example,", "a.example", true},
        {"10.0.0.0/8", "10.1.2.3", true},
        {"10.0.0.0/8", "11.1.2.3", false},
        {"10.1.2.3", "10.1.2.3", true},
        {"2001:db8::/32", "2001:db8::7", true},
        {"3", "10.1.2.3", false},
        {"10.0.0.0/8", "10.example", false},
        {".", "a.example", false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        assert_int_equal(proxy_avoids(row[i].list, slice_str(row[i].host)), row[i].avoids);
    }
}

static void asked(void **state)
{
    struct buf out = BUF_INIT(8192);
    struct proxy p = {.host = SLICE("x"), .port = 1};

    (void)state;
    assert_int_equal(proxy_ask(&p, SLICE("a.example"), 873, &out, NULL), 0);
    assert_string_equal(buf_cstr(&out),
                        "CONNECT a.example:873 HTTP/1.1\r\nHost: a.example:873\r\n\r\n");
    buf_clear(&out);
    p.user = SLICE("me:p%40ss");
    assert_int_equal(proxy_ask(&p, SLICE("2001:db8::1"), 874, &out, NULL), 0);
    assert_string_equal(buf_cstr(&out),
                        "CONNECT [2001:db8::1]:874 HTTP/1.1\r\nHost: [2001:db8::1]:874\r\n"
                        "Proxy-Authorization: Basic bWU6cEBzcw==\r\n\r\n");
    buf_clear(&out);
    p.user = SLICE("me:p%4");
    assert_int_equal(proxy_ask(&p, SLICE("a"), 873, &out, NULL), E_INVALID);
    assert_int_equal(proxy_ask(&p, SLICE("a\r\nX: y"), 873, &out, NULL), E_INVALID);
    buf_free(&out);
}

static void answers(void **state)
{
    static const struct {
        const char *text;
        int rc;
    } row[] = {
        {"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n", 0},
        {"HTTP/1.0 200\n\n", 0},
        {"HTTP/1.1 299 Odd\r\n\r\n", 0},
        {"HTTP/1.1 403 No\r\n\r\n", E_DENIED},
        {"HTTP/1.1 407 Who\r\n\r\n", E_DENIED},
        {"HTTP/1.1 502 Bad\r\n\r\n", E_NETWORK},
        {"HTTP/1.1 100 Continue\r\n\r\n", E_NETWORK},
        {"HTTP/2 200\r\n\r\n", E_NETWORK},
        {"HTTP/1.1\r\n\r\n", E_NETWORK},
        {"\r\n\r\n", E_NETWORK},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct slice whole = slice_str(row[i].text);
        char room[128];
        size_t used = 0;
        for (size_t n = 0; n < whole.n; n++) {
            assert_int_equal(proxy_answer(slice_first(whole, n), &used, NULL), E_AGAIN);
        }
        snprintf(room, sizeof room, "%s@RSYNCD: 31.0\n", row[i].text);
        assert_int_equal(proxy_answer(slice_str(room), &used, NULL), row[i].rc);
        assert_int_equal(used, whole.n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(who_goes_without),
        cmocka_unit_test(asked),
        cmocka_unit_test(answers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
