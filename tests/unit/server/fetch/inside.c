#include "server/fetch/inside.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

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

static void hosts_inside_are_known_in_every_spelling(void **state)
{
    static const char *const in[] = {"127.0.0.1",
                                     "127.0.0.1.",
                                     "127.0.0.1..",
                                     "127.1",
                                     "127.0.1",
                                     "2130706433",
                                     "0x7f000001",
                                     "0X7F.1",
                                     "0177.0.0.1",
                                     "017700000001",
                                     "0",
                                     "0.0.0.0",
                                     "10.0.0.1",
                                     "0xa.1",
                                     "192.168.257",
                                     "169.254.169.254",
                                     "0xa9fea9fe",
                                     "2852039166",
                                     "localhost",
                                     "LocalHost.",
                                     "x.localhost",
                                     "ip6-localhost",
                                     "ip6-loopback",
                                     "localhost.localdomain",
                                     "::1",
                                     "::",
                                     "::ffff:10.0.0.1",
                                     "::FFFF:7F00:1",
                                     "::ffff:0:7f00:1",
                                     "2a00::5efe:10.0.0.1",
                                     "2a00::200:5efe:7f00:1",
                                     "64:ff9b::127.0.0.1",
                                     "2002:a00:1::",
                                     "fd00::1",
                                     "fe80::1",
                                     "1:2:3",
                                     ".",
                                     ""};
    static const char *const out[] = {
        "8.8.8.8",           "134744072",      "0x08.8.8.8",       "203.0.113.7",
        "2600::1",           "files.example",  "localhost.x.org",  "notlocalhost",
        "127.0.0.1.example", "0x7f.example",   "127.0.0.256",      "1.2.3.4.5",
        "files.internal",    "::ffff:8.8.8.8", "::ffff:0:808:808", "2a00::5efe:8.8.8.8"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(in); i++) {
        if (!host_is_inside(slice_str(in[i]))) {
            fail_msg("%s", in[i]);
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(out); i++) {
        if (host_is_inside(slice_str(out[i]))) {
            fail_msg("%s", out[i]);
        }
    }
}

static void names_that_the_public_dns_cannot_have(void **state)
{
    static const char *const in[] = {"intranet",      "metadata.google.internal",
                                     "Printer.LOCAL", "local",
                                     "a.b.home.arpa", "home.arpa.",
                                     "nas.lan",       "git.corp",
                                     "x.home",        "git.intranet",
                                     "internal.",     "x.localdomain"};
    static const char *const out[] = {"files.example", "internal.example", "home.arpa.example",
                                      "nothome.arpa",  "xlocal.org",       "2600::1"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(in); i++) {
        if (!host_is_private(slice_str(in[i]))) {
            fail_msg("%s", in[i]);
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(out); i++) {
        if (host_is_private(slice_str(out[i]))) {
            fail_msg("%s", out[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_inside_are_known_in_every_dress),
        cmocka_unit_test(hosts_inside_are_known_in_every_spelling),
        cmocka_unit_test(names_that_the_public_dns_cannot_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
