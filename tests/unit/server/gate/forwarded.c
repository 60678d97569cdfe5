#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "server/gate/forwarded.h"

struct said {
    const char *peer, *for_, *proto, *host, *forwarded;
    bool tls;
    /* NULL: the proxy is not believed */
    const char *client, *as_host;
    bool as_tls;
};

static struct sockaddr_storage at(const char *text)
{
    struct sockaddr_storage s = {.ss_family = AF_INET};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&s;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&s;

    if (inet_pton(AF_INET, text, &v4->sin_addr) != 1) {
        s.ss_family = AF_INET6;
        assert_int_equal(inet_pton(AF_INET6, text, &v6->sin6_addr), 1);
    }
    return s;
}

static void check(const struct proxies *ps, const struct said *s)
{
    struct arena arena = {0};
    struct sockaddr_storage peer = at(s->peer), want;
    struct http_field fields[4];
    struct http_req r = {.peer = &peer,
                         .tls = s->tls,
                         .host = SLICE("inner:8080"),
                         .fields = fields,
                         .arena = &arena};
    struct forwarded got;
    const char *const names[] = {"x-forwarded-for", "x-forwarded-proto", "x-forwarded-host",
                                 "forwarded"};
    const char *const values[] = {s->for_, s->proto, s->host, s->forwarded};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (values[i] != NULL) {
            fields[r.nfields++] = (struct http_field){slice_str(names[i]), slice_str(values[i])};
        }
    }
    assert_int_equal(forwarded_read(ps, &r, &got), s->client != NULL);
    if (s->client != NULL) {
        want = at(s->client);
        assert_memory_equal(&got.peer, &want, sizeof want);
        assert_true(slice_eqs(got.host, s->as_host != NULL ? s->as_host : "inner:8080"));
        assert_int_equal(got.tls, s->as_tls);
    }
    arena_fini(&arena);
}

static void who_is_believed(void **state)
{
    static const char *const networks[] = {"10.0.0.0/8", "fd00::/8"};
    static const struct said rows[] = {
        {"192.0.2.1", "203.0.113.9", "https", "m", NULL, false, NULL, NULL, false},
        {"10.0.0.1", NULL, NULL, NULL, NULL, true, "10.0.0.1", NULL, true},
        {"10.0.0.1", "203.0.113.9", NULL, NULL, NULL, true, "203.0.113.9", NULL, true},
        {"fd00::1", "203.0.113.9", "https", "m.example", NULL, false, "203.0.113.9", "m.example",
         true},
        {"10.0.0.1", "203.0.113.9", "http", NULL, NULL, true, "203.0.113.9", NULL, false},
        /* what the client wrote itself stands to the left */
        {"10.0.0.1", "127.0.0.1, 203.0.113.9", "https", NULL, NULL, false, "203.0.113.9", NULL,
         true},
        {"10.0.0.1", "1.1.1.1, 203.0.113.9 ,10.2.3.4", NULL, NULL, NULL, false, "203.0.113.9", NULL,
         false},
        {"10.0.0.1", "10.0.0.9,10.2.3.4", NULL, NULL, NULL, false, "10.0.0.9", NULL, false},
        {"10.0.0.1", NULL, "https,http", "evil,good:1", NULL, false, "10.0.0.1", "good:1", false},
        /* nonsense says nothing */
        {"10.0.0.1", "1.1.1.1,unknown,10.2.3.4", "gopher", "a b", NULL, true, "10.2.3.4", NULL,
         true},
        {"10.0.0.1", ",,", "", "", NULL, false, "10.0.0.1", NULL, false},
        {"10.0.0.1", "203.0.113.9.203.0.113.9.203.0.113.9.203.0.113.9.1", NULL, NULL, NULL, false,
         "10.0.0.1", NULL, false},
        {"10.0.0.1", "[", NULL, "\"", NULL, false, "10.0.0.1", NULL, false},
        {"10.0.0.1", "2001:db8::1", NULL, NULL, NULL, false, "2001:db8::1", NULL, false},
        {"10.0.0.1", "[2001:db8::1]:80", NULL, NULL, NULL, false, "2001:db8::1", NULL, false},
        {"10.0.0.1", "203.0.113.9:80", NULL, NULL, NULL, false, "203.0.113.9", NULL, false},
        /* RFC 7239 */
        {"10.0.0.1", NULL, NULL, NULL, "For=\"[2001:db8::1]:4711\"; Proto=https;host=\"m:8443\"",
         false, "2001:db8::1", "m:8443", true},
        {"10.0.0.1", NULL, NULL, NULL, "for=1.1.1.1;proto=https, for=203.0.113.9;proto=http", true,
         "203.0.113.9", NULL, false},
        {"10.0.0.1", NULL, NULL, NULL, "for=203.0.113.9;proto=https, for=10.0.0.9;proto=http",
         false, "203.0.113.9", NULL, true},
        {"10.0.0.1", NULL, NULL, NULL, "for=203.0.113.9;proto=https, for=_hidden", false,
         "10.0.0.1", NULL, false},
        {"10.0.0.1", NULL, NULL, NULL, ";=;for;,=", false, "10.0.0.1", NULL, false},
        {"10.0.0.1", "203.0.113.9", NULL, NULL, "for=1.1.1.1;proto=https", false, "203.0.113.9",
         NULL, false},
    };
    struct proxies *ps = proxies_new(networks, ARRAY_LEN(networks));

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        check(ps, &rows[i]);
    }
    proxies_release(&ps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_is_believed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
