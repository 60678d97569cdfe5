#include "server/fetch/origin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/xfer/xfer.h"
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

static void hosts_of_the_inner_network_are_the_configurations_alone(void **state)
{
    static const char *const hosts[] = {"10.0.0.1", "printer.local"};
    struct origin_settings set = {.url = "https://o.example/", .proxy = "http://proxy:3128"};
    struct origin *direct = make("https://o.example/", NULL, 0);
    struct origin *named = make("https://10.0.0.2/", hosts, ARRAY_LEN(hosts));
    struct origin *proxied = NULL;

    (void)state;
    assert_int_equal(origin_new("r", &set, &proxied, NULL), 0);
    assert_int_equal(admits(direct, "https://10.0.0.1/x", "https://o.example/"), E_DENIED);
    assert_int_equal(admits(proxied, "https://10.0.0.1/x", "https://o.example/"), E_DENIED);
    assert_int_equal(admits(proxied, "https://0xa000001/x", "https://o.example/"), E_DENIED);
    assert_int_equal(admits(direct, "https://files.example/x", "https://o.example/"), 0);
    assert_int_equal(admits(proxied, "https://files.example/x", "https://o.example/"), 0);
    /* Looked up here it shows its address; a proxy would look it up in its own network. */
    assert_int_equal(admits(direct, "https://files.internal/x", "https://o.example/"), 0);
    assert_int_equal(admits(proxied, "https://files.internal/x", "https://o.example/"), E_DENIED);
    assert_int_equal(admits(named, "https://10.0.0.1/x", "https://10.0.0.2/"), 0);
    assert_int_equal(admits(named, "https://10.0.0.2/x", "https://10.0.0.2/"), 0);
    assert_int_equal(admits(named, "https://printer.local/x", "https://10.0.0.2/"), 0);
    origin_free(&direct);
    origin_free(&named);
    origin_free(&proxied);
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

static void a_proxy_has_its_password_escaped(void **state)
{
    static const char *const bare[] = {"http://u:s3c/ret@px:3128", "http://u:s3c?ret@px:3128",
                                       "u:s3c#ret@px:3128"};
    static const char *const right[] = {"http://u:s3c%2Fret@px:3128/", "px:3128", "http://px:3128"};
    struct origin_settings set = {.url = "https://o.example/"};
    struct origin *o = NULL;
    struct err e = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bare); i++) {
        set.proxy = bare[i];
        assert_int_equal(origin_new("r", &set, &o, &e), E_CONFIG);
        assert_null(strstr(e.text, "s3c"));
        assert_null(strstr(e.text, "ret"));
    }
    for (size_t i = 0; i < ARRAY_LEN(right); i++) {
        set.proxy = right[i];
        assert_int_equal(origin_new("r", &set, &o, &e), 0);
        origin_free(&o);
    }
}

static void no_proxy_is_for_what_the_configuration_names(void **state)
{
    static const char *const hosts[] = {"files.example"};
    struct origin_settings set = {.url = "https://o.example/",
                                  .hosts = hosts,
                                  .hosts_count = 1,
                                  .proxy = "http://proxy.example:3128",
                                  .no_proxy = ".example,10.0.0.0/8",
                                  .proxy_resolve = true};
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
        struct xfer_params w = {0};
        struct url u;
        assert_int_equal(url_split(slice_str(seen[i].url), &u, NULL), 0);
        origin_set_way(o, origin_trusts_address(o, &u), &w);
        assert_string_equal(w.proxy, set.proxy);
        assert_int_equal(w.no_proxy != NULL, seen[i].direct);
        assert_int_equal(w.admit == NULL, seen[i].direct);
        assert_int_equal(w.proxy_resolve, !seen[i].direct);
    }
    origin_free(&o);
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

static uint64_t failures(const struct origin *o)
{
    struct origin_health h;

    origin_health(o, &h);
    assert_true((h.failures == 0) == (h.since_unix_s == 0));
    return h.failures;
}

static void health_is_of_the_latest_requests(void **state)
{
    struct origin *o = make("http://o.example/", NULL, 0);
    struct origin_health h;

    (void)state;
    assert_int_equal(failures(o), 0);
    origin_failed(o, false, "cannot connect");
    origin_failed(o, false, "no route");
    origin_health(o, &h);
    assert_int_equal(h.failures, 2);
    assert_string_equal(h.why, "no route");
    origin_answered(o, false); /* a head is what was missing */
    assert_int_equal(failures(o), 0);
    origin_failed(o, true, "cut after 5 bytes");
    origin_answered(o, false); /* a head proves nothing: it is what comes after it that fails */
    assert_int_equal(failures(o), 1);
    origin_answered(o, true);
    assert_int_equal(failures(o), 0);
    origin_free(&o);
}

static void another_origin_in_its_place_has_not_failed(void **state)
{
    struct origin *o = make("http://o.example/", NULL, 0),
                  *next = make("http://p.example/", NULL, 0);
    struct origin_request_counters shared = {0};

    (void)state;
    origin_request_counters_init(&shared);
    origin_count_in(o, &shared);
    origin_count_in(next, &shared); /* as after a reload */
    origin_failed(o, false, "cannot connect");
    assert_int_equal(failures(o), 1);
    assert_int_equal(failures(next), 0);
    origin_failed(next, false, "cannot connect");
    assert_int_equal(failures(next), 1);
    origin_free(&o);
    origin_free(&next);
    origin_request_counters_fini(&shared);
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
        cmocka_unit_test(hosts_of_the_inner_network_are_the_configurations_alone),
        cmocka_unit_test(a_list_of_hosts_is_the_whole_list),
        cmocka_unit_test(a_proxy_has_its_password_escaped),
        cmocka_unit_test(no_proxy_is_for_what_the_configuration_names),
        cmocka_unit_test(keys_are_scheme_host_port),
        cmocka_unit_test(content_ranges_are_read_strictly),
        cmocka_unit_test(health_is_of_the_latest_requests),
        cmocka_unit_test(another_origin_in_its_place_has_not_failed),
        cmocka_unit_test(wrong_settings_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
