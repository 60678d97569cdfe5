#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/os/newfile.h"
#include "server/conf/conf.h"

static char folder[] = "/tmp/conf-test-XXXXXX";

static int setup(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL || chdir(folder) != 0;
}

static int teardown(void **state)
{
    (void)state;
    return chdir("/") != 0 || dir_remove_tree(folder, NULL) != 0;
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static struct conf *read_good(const char *text)
{
    struct conf *c = NULL;
    struct err e = {0};

    put("c", text);
    if (conf_read("c", &c, &e) != 0) {
        fail_msg("%s", e.text);
    }
    return c;
}

#define LISTEN "listen \":8080\" { }\n"

static void wrong_files(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"", "c:1: there is no listen section, so no client could connect; write "
             "listen \"0.0.0.0:8080\" { }"},
        {LISTEN "\n# note\n// note\n/* two\nlines */ stroage { }\n",
         "c:6: unknown key \"stroage\": the file has no such key; did you mean \"storage\"?"},
        {LISTEN "storage {\n  quotta = 5\n}",
         "c:3: unknown key \"quotta\": section storage has no such key; did you mean \"quota\"?"},
        {LISTEN "zebra = 1",
         "c:2: unknown key \"zebra\": the file has no such key; see mirrord.conf(5)"},
        {LISTEN "threads = 2\nthreads = 3",
         "c:3: threads is set twice, first at c:2; remove one of them"},
        {LISTEN LISTEN,
         "c:2: the title \":8080\" is used twice: two sections of a kind cannot have the "
         "same title; rename or remove this one"},
        {LISTEN "storage { }\nstorage { }",
         "c:3: section storage appears again, first at c:2; merge the two"},
        {LISTEN "\naccess_log = \"${CONF_TEST_UNSET}\"",
         "c:3: variable CONF_TEST_UNSET is not set: its value would be empty; export it or write "
         "${CONF_TEST_UNSET:-default}"},
        {"public_url = https://mirror.example/",
         "c:1: a URL is not quoted: \"//\" begins a comment; put it in quotes"},
        {LISTEN "state_dir = \"x\n",
         "c:2: a string is not closed: the line ends before its quote; close it"},
        {LISTEN "/* x", "c:2: a comment is not closed: the file ends before \"*/\"; close it"},
        {LISTEN "state_dir = \"\\q\"",
         "c:2: an escape is unknown: in double quotes there are \\\" \\\\ \\$ \\n \\r \\t; single "
         "quotes keep everything else unchanged"},
        {LISTEN "threads =",
         "c:2: premature end of file: the syntax is key = value and section \"title\" { }; "
         "fix this line or the one above"},
        {LISTEN "storage { quota = 5q }",
         "c:2: quota = \"5q\": invalid value; write a size, such as 64k or 10g"},
        {LISTEN "storage { high = 50% low = 60% }",
         "c:1: storage has low above high, so eviction would never end; set low below high"},
        {LISTEN "threads = 1000",
         "c:2: threads = \"1000\": the value is out of range; choose one in 0..256"},
        {LISTEN "access_log_format = xml",
         "c:2: access_log_format = \"xml\": unknown value; choose one of json | combined"},
        {LISTEN "plaintext_token = maybe",
         "c:2: plaintext_token = \"maybe\": not a boolean; write true or false"},
        {LISTEN "trusted_proxies = {\"10.0.0.0/8\", \"10.0.0.1/8\"}",
         "c:2: trusted_proxies = \"10.0.0.1/8\": invalid network; write one such as 10.0.0.0/8 or "
         "fd00::/8"},
        {"listen \"8080\" { }",
         "c:1: listen \"8080\": invalid address; write an address and a port, such as "
         "0.0.0.0:8080 or [::]:8443"},
        {"listen \":1\" { root = \"hf\" }",
         "c:1: root = \"hf\": there is no repo of that name; add it or name another"},
        {"listen \":1\" {\n tls_certificate = \"cert.pem\"\n}",
         "c:2: tls_certificate = \"cert.pem\": the file cannot be read (not found); check its path "
         "and mode"},
        {"listen \":1\" { tls_key = \"c\" }",
         "c:1: listen \":1\" has only tls_key, but TLS needs a certificate and its key; set both"},
        {LISTEN "repo \"v2\" { protocol = \"hosted\" }",
         "c:2: repo \"v2\": invalid name: it becomes the first part of its paths; use lower-case "
         "letters, digits, '.', '_' and '-', but not healthz, readyz, metrics or v2"},
        {LISTEN "repo \"a\" { }",
         "c:2: repo \"a\" has no protocol, which is required; write protocol = ..."},
        {LISTEN "repo \"a\" {\n protocol = \"gopher\"\n}",
         "c:3: protocol = \"gopher\": unknown protocol; see mirrord.conf(5) for the list"},
        {LISTEN "repo \"a\" { protocol = \"generic\" }",
         "c:2: repo \"a\" has no origin to fetch from; write origin = "
         "\"https://...\""},
        {LISTEN "repo \"a\" { protocol = \"hosted\" origin = \"https://data.example/\" }",
         "c:2: repo \"a\" is hosted and has an origin, but hosted files come from uploads; "
         "remove the origin"},
        {LISTEN "repo \"a\" { protocol = \"generic\" origin = \"https://data.example/?x\" }",
         "c:2: origin = \"https://data.example/?x\": paths are appended to it; "
         "remove the query and the fragment"},
        {LISTEN "repo \"a\" { protocol = \"generic\" origin = \"https://data.example/\"\n"
                "authorization = \"Bearer geheim\" }",
         "c:3: authorization contains the secret itself, but many users can read a configuration; "
         "write credential:NAME or file:PATH"},
        {LISTEN "repo \"a\" { protocol = \"pypi\" origin = \"https://pypi.example/\"\n"
                "forward = {\"Accept\"} }",
         "c:3: repo \"a\" has forward, which is only for protocol generic with an "
         "http origin and no sync; remove it"},
        {LISTEN "repo \"a\" { protocol = \"generic\" origin = \"https://data.example/\"\n"
                "forward = {\"Accept\", \"Cookie\"} }",
         "c:3: forward = {\"Cookie\"}: the response to one client's cookies would be served to "
         "all; remove it from the list"},
        {LISTEN "repo \"a\" { protocol = \"generic\" origin = \"https://data.example/\"\n"
                "forward = {\"Accept\", \"accept\"} }",
         "c:3: forward = {\"accept\"}: it appears twice; remove it from the list"},
        {LISTEN "limit \"10.0.0.0/99\" { }",
         "c:2: limit \"10.0.0.0/99\": invalid title; write \"anonymous\", the name of a token "
         "or a network such as 10.0.0.0/8"},
        {LISTEN "include(\"none.conf\")",
         "c:2: none.conf cannot be included: there is no such file; write its path relative to c"},
        {LISTEN "}",
         "c:2: unexpected closing brace: the syntax is key = value and section \"title\" { "
         "}; fix this line or the one above"},
        {LISTEN "storage {",
         "c:2: a brace is not closed: the file ends before its \"}\"; close it"},
        {LISTEN "drain = 1\x01",
         "c:2: the text has a control byte: this may not be a configuration "
         "file; remove it"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct conf *c = NULL;
        struct err e = {0};
        put("c", cases[i].text);
        if (conf_read("c", &c, &e) != E_CONFIG) {
            fail_msg("case %zu was taken: %s", i, cases[i].text);
        }
        assert_string_equal(e.text, cases[i].want);
        assert_null(c);
    }
    /* What a broken file leaves behind in the lexer must not reach the next one. */
    struct conf *c = read_good(LISTEN);
    conf_free(&c);
}

static void defaults(void **state)
{
    struct conf *c = read_good(
        LISTEN "repo \"a\" { protocol = \"hosted\" }\nlimit \"anonymous\" { requests = 30/m }");

    (void)state;
    assert_string_equal(c->store.state_dir, "/var/lib/mirrord");
    assert_string_equal(c->control_socket, "/var/lib/mirrord/control.sock");
    assert_true(c->store.reserve_ratio == 0.05 && c->store.reserve_bytes == 0);
    assert_true(c->store.high_ratio == 0.9 && c->store.low_ratio == 0.85);
    assert_int_equal(c->cache.segment_bytes, 64 << 20);
    assert_int_equal(c->cache.default_ttl_s, 60);
    assert_int_equal(c->http.header_ms, 10000);
    assert_int_equal(c->http.min_rate_bytes_per_s, 16384);
    assert_int_equal(c->cache.scrub_rate_bytes_per_s, 50 << 20);
    assert_int_equal(c->drain_ms, 30000);
    assert_null(c->public_url);
    assert_string_equal(c->listeners[0].address, ":8080");
    assert_true(c->repos[0].anonymous_read);
    assert_false(c->repos[0].origin.hosts_set);
    assert_int_equal(c->repos[0].origin.connections, 16);
    assert_true(c->limits[0].requests_per_s == 0.5);
    assert_int_equal(c->limits[0].burst, 1);
    conf_free(&c);
    assert_null(c);
}

static const char whole[] =
    "state_dir = \"/srv/m\" # here\n"
    "storage { quota = 2t reserve = \"20g\" high = 80% low = 70% }\n"
    "listen \"[::1]:8443\" { root = \"datasets\" }\n"
    "repo \"datasets\" {\n"
    "  protocol = \"generic\"\n"
    "  origin = \"https://data.example/\"\n"
    "  hosts = {\"cdn.example\", \"cdn.example:8443\"}\n"
    "  authorization = \"file:secret\"\n"
    "  access { anonymous = none }\n"
    "  rule '\\.tar\\.gz$' { class = immutable }\n"
    "  rule '^api/' { class = mutable ttl = 10m sie = 7d status_map = \"403:404\" }\n"
    "}\n"
    "limit \"10.0.0.0/8\" { rate = 100m/s connections = 256 }\n";

static void check_whole(const struct conf *c)
{
    assert_int_equal(c->store.quota_bytes, (uint64_t)2 << 40);
    assert_int_equal(c->store.reserve_bytes, (uint64_t)20 << 30);
    assert_true(c->store.reserve_ratio == 0);
    assert_int_equal(c->repos_count, 1);
    assert_true(c->repos[0].origin.hosts_set);
    assert_int_equal(c->repos[0].origin.hosts_count, 2);
    assert_string_equal(c->repos[0].origin.hosts[1], "cdn.example:8443");
    assert_string_equal(c->repos[0].origin.authorization, "Bearer hf_abc");
    assert_false(c->repos[0].anonymous_read);
    assert_int_equal(c->repos[0].rules_count, 2);
    assert_string_equal(c->repos[0].rules[0].pattern, "\\.tar\\.gz$");
    assert_string_equal(c->repos[0].rules[0].class, "immutable");
    assert_int_equal(c->repos[0].rules[0].ttl_s, -1);
    assert_int_equal(c->repos[0].rules[1].ttl_s, 600);
    assert_int_equal(c->repos[0].rules[1].sie_s, 604800);
    assert_string_equal(c->limits[0].title, "10.0.0.0/8");
    assert_int_equal(c->limits[0].rate_bytes_per_s, 100 << 20);
    assert_string_equal(c->listeners[0].root, "datasets");
}

static void printed_reads_again(void **state)
{
    struct buf text = BUF_INIT(1 << 20), again = BUF_INIT(1 << 20);
    struct conf *c;

    (void)state;
    put("secret", "hf_abc\n");
    c = read_good(whole);
    check_whole(c);
    assert_string_equal(c->repos[0].source, "c:4");
    conf_print(c, &text);
    conf_free(&c);
    assert_null(strstr(buf_cstr(&text), "hf_abc")); /* a secret is never printed */
    c = read_good(buf_cstr(&text));
    check_whole(c);
    conf_print(c, &again);
    assert_string_equal(buf_cstr(&text), buf_cstr(&again));
    conf_free(&c);
    buf_free(&text);
    buf_free(&again);
}

/* No line of a file that does not read is to blame. */
static void files_that_do_not_read(void **state)
{
    struct conf *c = NULL;
    struct err e = {0};

    (void)state;
    assert_int_equal(conf_read("none.conf", &c, &e), E_CONFIG);
    assert_string_equal(e.text,
                        "none.conf: no such file or directory; name another with -c, or run "
                        "`mirrorctl init` to write one");
    assert_int_equal(dir_make("folder", 0755, NULL), 0);
    assert_int_equal(conf_read("folder", &c, &e), E_CONFIG);
    assert_non_null(strstr(e.text, "folder: the file cannot be read ("));
}

static void includes(void **state)
{
    struct conf *c = NULL;
    struct err e = {0};

    (void)state;
    assert_int_equal(dir_make("d/conf.d", 0755, NULL), 0);
    put("d/main", "include(\"conf.d/*.conf\")\ninclude(\"none/*.conf\")\n" LISTEN);
    put("d/conf.d/20-b.conf", "repo \"b\" { protocol = \"hosted\" }\n");
    put("d/conf.d/10-a.conf", "repo \"a\" { protocol = \"hosted\" }\nstate_dir = \"rel\"\n");
    assert_int_equal(conf_read("d/main", &c, &e), 0);
    assert_int_equal(c->repos_count, 2);
    assert_string_equal(c->repos[0].name, "a");
    assert_string_equal(c->repos[1].source, "d/conf.d/20-b.conf:1");
    assert_string_equal(c->store.state_dir, "d/conf.d/rel");
    conf_free(&c);
    put("d/conf.d/20-b.conf", "\n\nrepo \"a\" { protocol = \"hosted\" }\n");
    assert_int_equal(conf_read("d/main", &c, &e), E_CONFIG);
    assert_non_null(strstr(e.text, "d/conf.d/20-b.conf:3: the title \"a\" is used twice"));
    put("d/conf.d/20-b.conf", "state_dir = \"y\"\n");
    assert_int_equal(conf_read("d/main", &c, &e), E_CONFIG);
    assert_string_equal(e.text, "d/conf.d/20-b.conf:1: state_dir is set twice, first at "
                                "d/conf.d/10-a.conf:2; remove one of them");
    put("d/conf.d/20-b.conf", "include(\"20-b.conf\")\n");
    assert_int_equal(conf_read("d/main", &c, &e), E_CONFIG);
    assert_non_null(strstr(e.text, "too many files"));
}

static void environment(void **state)
{
    struct conf *c;

    (void)state;
    assert_int_equal(setenv("CONF_TEST_HOST", "data.example", 1), 0);
    c = read_good(LISTEN
                  "repo \"a\" { protocol = \"generic\" origin = \"https://${CONF_TEST_HOST}/\"\n"
                  "proxy = \"${CONF_TEST_NONE:-http://p.example:3128}\" no_proxy = '${x}' }");
    assert_string_equal(c->repos[0].origin.url, "https://data.example/");
    assert_string_equal(c->repos[0].origin.proxy, "http://p.example:3128");
    assert_string_equal(c->repos[0].origin.no_proxy, "${x}");
    conf_free(&c);
    assert_int_equal(setenv("CREDENTIALS_DIRECTORY", folder, 1), 0);
    put("token", "Basic YTpi\r\n");
    c = read_good(LISTEN "repo \"a\" { protocol = \"generic\" origin = \"https://data.example/\"\n"
                         "authorization = \"credential:token\" }");
    assert_string_equal(c->repos[0].origin.authorization, "Basic YTpi");
    conf_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_files),
        cmocka_unit_test(defaults),
        cmocka_unit_test(printed_reads_again),
        cmocka_unit_test(files_that_do_not_read),
        cmocka_unit_test(includes),
        cmocka_unit_test(environment),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
