#include "server/fetch/origin.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "server/fetch/content_range.h"
#include "server/fetch/origin_priv.h"

static struct origin *make(const char *url, const char *const *hosts, size_t count)
{
    struct origin_settings set = {
        .url = url, .hosts = hosts, .hosts_count = count, .hosts_set = hosts != NULL};
    struct origin *o = NULL;
    struct err e;

    assert_int_equal(origin_new("r", &set, &o, &e), 0);
    return o;
}

static int admits(const struct origin *o, const char *url, const char *via)
{
    struct err e;

    return origin_admits(o, slice_str(url), slice_str(via), &e);
}

static void the_configured_origin_alone_needs_no_page(void **state)
{
    struct origin *o = make("https://O.example:443/base/", NULL, 0);

    (void)state;
    assert_int_equal(admits(o, "https://o.example/base/x%2By", NULL), 0);
    assert_int_equal(admits(o, "https://o.example/elsewhere", NULL), 0);
    assert_int_equal(admits(o, "https://o.example:8443/", NULL), E_DENIED);
    assert_int_equal(admits(o, "http://o.example/", NULL), E_DENIED);
    assert_int_equal(admits(o, "https://other.example/", NULL), E_DENIED);
    origin_free(&o);
}

static void pages_over_https_name_other_hosts(void **state)
{
    struct origin *o = make("https://o.example/", NULL, 0);
    struct origin *plain = make("http://o.example/", NULL, 0);

    (void)state;
    assert_int_equal(admits(o, "https://files.example/x", "https://o.example/page"), 0);
    assert_int_equal(admits(o, "http://files.example/x", "https://o.example/page"), E_DENIED);
    assert_int_equal(admits(o, "http://o.example/x", "https://o.example/page"), E_DENIED);
    assert_int_equal(admits(o, "file:///etc/passwd", "https://o.example/page"), E_DENIED);
    assert_true(admits(o, "https://a:b@files.example/x", "https://o.example/page") != 0);
    assert_true(admits(o, "https://files.example\\@o.example/", "https://o.example/page") != 0);
    assert_int_equal(admits(plain, "https://files.example/x", "http://o.example/page"), E_DENIED);
    assert_int_equal(admits(plain, "http://o.example/x", "http://o.example/page"), 0);
    origin_free(&o);
    origin_free(&plain);
}

static void a_list_of_hosts_is_the_whole_list(void **state)
{
    static const char *const hosts[] = {"files.example", "cdn.example:8443", "[fd00::1]:80"};
    struct origin *o = make("https://o.example/", hosts, ARRAY_LEN(hosts));
    struct origin *none = make("https://o.example/", hosts, 0);

    (void)state;
    assert_int_equal(admits(o, "https://FILES.example/x", "https://o.example/"), 0);
    assert_int_equal(admits(o, "https://cdn.example:8443/x", "https://o.example/"), 0);
    assert_int_equal(admits(o, "https://cdn.example/x", "https://o.example/"), E_DENIED);
    assert_int_equal(admits(o, "http://[fd00::1]/x", "http://o.example/"), 0);
    assert_int_equal(admits(o, "https://evil.example/x", "https://o.example/"), E_DENIED);
    assert_int_equal(admits(o, "https://files.example.evil.example/", "https://o.example/"),
                     E_DENIED);
    assert_int_equal(admits(none, "https://files.example/", "https://o.example/"), E_DENIED);
    assert_int_equal(admits(none, "https://o.example/", "https://o.example/"), 0);
    origin_free(&o);
    origin_free(&none);
}

static void no_proxy_is_for_what_the_configuration_names(void **state)
{
    static const char *const hosts[] = {"files.example"};
    struct origin_settings set = {.url = "https://o.example/",
                                  .hosts = hosts,
                                  .hosts_count = 1,
                                  .proxy = "http://proxy.example:3128",
                                  .no_proxy = ".example,10.0.0.0/8"};
    static const struct {
        const char *url;
        bool direct;
    } seen[] = {{"https://o.example/x", true},
                {"https://files.example/x", true},
                {"https://other.example/x", false},
                {"https://10.0.0.1/x", false}};
    struct origin *o = NULL;

    (void)state;
    assert_int_equal(origin_new("r", &set, &o, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(seen); i++) {
        struct url u;
        assert_int_equal(url_split(slice_str(seen[i].url), &u, NULL), 0);
        assert_int_equal(origin_no_proxy(o, &u) != NULL, seen[i].direct);
    }
    origin_free(&o);
}

static bool inside(const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};

    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
        return address_is_inside((const struct sockaddr *)&v4);
    }
    assert_int_equal(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
    return address_is_inside((const struct sockaddr *)&v6);
}

static void addresses_inside_are_known_in_every_dress(void **state)
{
    static const char *const in[] = {"127.0.0.1",
                                     "127.9.9.9",
                                     "0.0.0.0",
                                     "10.1.2.3",
                                     "172.16.0.1",
                                     "172.31.255.255",
                                     "192.168.0.1",
                                     "169.254.169.254",
                                     "100.64.0.1",
                                     "100.100.100.200",
                                     "224.0.0.1",
                                     "255.255.255.255",
                                     "::1",
                                     "::",
                                     "::ffff:127.0.0.1",
                                     "::ffff:10.0.0.1",
                                     "::127.0.0.1",
                                     "64:ff9b::7f00:1",
                                     "64:ff9b::a9fe:a9fe",
                                     "2002:7f00:1::",
                                     "64:ff9b:1::a9fe:a9fe",
                                     "2001:0:4136:e378:8000:63bf:3fff:fdd2",
                                     "fe80::1",
                                     "fec0::1",
                                     "fd00::1",
                                     "fc00::1",
                                     "ff02::1"};
    static const char *const out[] = {"8.8.8.8",        "172.32.0.1",      "172.15.0.1",
                                      "100.128.0.1",    "203.0.113.7",     "198.51.100.7",
                                      "192.0.2.7",      "2001:db8::1",     "2600::1",
                                      "::ffff:8.8.8.8", "64:ff9b::808:808"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(in); i++) {
        if (!inside(in[i])) {
            fail_msg("%s", in[i]);
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(out); i++) {
        if (inside(out[i])) {
            fail_msg("%s", out[i]);
        }
    }
}

static void keys_are_scheme_host_port(void **state)
{
    struct buf b = BUF_INIT(1024);
    struct err e;

    (void)state;
    assert_int_equal(url_origin_key(SLICE("HTTPS://Files.Example:443/a/b?c"), &b, &e), 0);
    assert_string_equal(buf_cstr(&b), "https://files.example");
    buf_clear(&b);
    assert_int_equal(url_origin_key(SLICE("http://x:8080/"), &b, &e), 0);
    assert_string_equal(buf_cstr(&b), "http://x:8080");
    assert_true(url_origin_key(SLICE("ftp://x/"), &b, &e) != 0);
    buf_free(&b);
}

static void content_ranges_are_read_strictly(void **state)
{
    static const char *const bad[] = {"",
                                      "bytes",
                                      "bytes 0-9",
                                      "bytes 5-4/10",
                                      "bytes 0-10/10",
                                      "bytes -9/10",
                                      "bytes 0-/10",
                                      "bytes 0-9/",
                                      "bytes */10",
                                      "items 0-9/10",
                                      "bytes 0-9/10/11",
                                      "bytes 0-9/x",
                                      "bytes 0-18446744073709551615/18446744073709551615",
                                      "bytes 0-18446744073709551616/*",
                                      "bytes=0-9/10"};
    struct content_range r;

    (void)state;
    assert_true(content_range_parse(SLICE("bytes 2-9/10"), &r));
    assert_int_equal(r.first, 2);
    assert_int_equal(r.end, 10);
    assert_int_equal(r.total, 10);
    assert_true(content_range_parse(SLICE(" Bytes 0-0/* "), &r));
    assert_true(r.total == UINT64_MAX);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (content_range_parse(slice_str(bad[i]), &r)) {
            fail_msg("%s", bad[i]);
        }
    }
}

static void wrong_settings_are_refused(void **state)
{
    static const char *const bad[] = {"",        "o.example",     "ftp://o.example/",
                                      "http://", "http://u:p@o/", "http://o/?q"};
    struct origin *o;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct origin_settings set = {.url = bad[i]};
        assert_true(origin_new("r", &set, &o, &e) != 0);
        assert_null(o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_configured_origin_alone_needs_no_page),
        cmocka_unit_test(pages_over_https_name_other_hosts),
        cmocka_unit_test(a_list_of_hosts_is_the_whole_list),
        cmocka_unit_test(no_proxy_is_for_what_the_configuration_names),
        cmocka_unit_test(addresses_inside_are_known_in_every_dress),
        cmocka_unit_test(keys_are_scheme_host_port),
        cmocka_unit_test(content_ranges_are_read_strictly),
        cmocka_unit_test(wrong_settings_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
