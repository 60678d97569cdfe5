#include "agent/peers/give.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static int call4(uint16_t port)
{
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = connect(fd, (const struct sockaddr *)&at, sizeof at);

    close(fd);
    return rc;
}

static int call6(uint16_t port)
{
    const struct sockaddr_in6 at = {
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = connect(fd, (const struct sockaddr *)&at, sizeof at);

    close(fd);
    return rc;
}

static bool has_ipv6(void)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok = fd != -1 && bind(fd, (const struct sockaddr *)&at, sizeof at) == 0;

    if (fd != -1) {
        close(fd);
    }
    return ok;
}

/* The mirror tells others the address that it saw, which may be of either kind. */
static void test_all_addresses_are_of_both_kinds(void **state)
{
    struct shared_files *shared_files = shared_files_open();
    struct give *g = NULL;
    struct err e;

    (void)state;
    assert_int_equal(give_open(shared_files, "::", 0, 1, &g, &e), 0);
    assert_int_equal(call4(give_port(g)), 0);
    assert_int_equal(has_ipv6() ? call6(give_port(g)) : 0, 0);
    give_close(&g);
    shared_files_close(&shared_files);
}

static void test_one_address_is_that_one(void **state)
{
    struct shared_files *shared_files = shared_files_open();
    struct give *g = NULL;
    struct err e;

    (void)state;
    assert_int_equal(give_open(shared_files, "127.0.0.1", 0, 1, &g, &e), 0);
    assert_int_equal(call4(give_port(g)), 0);
    assert_true(!has_ipv6() || call6(give_port(g)) != 0);
    give_close(&g);
    assert_int_equal(give_open(shared_files, "nowhere", 0, 1, &g, &e), E_CONFIG);
    shared_files_close(&shared_files);
}

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void test_requests(void **state)
{
    struct inbound_peer_request r;

    (void)state;
    assert_true(
        inbound_peer_read(SLICE("GET /" HEX "/have HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n"), &r));
    assert_true(r.have && !r.closes && slice_eqs(r.digest_hex, HEX));
    assert_true(inbound_peer_read(SLICE("GET /" HEX "/17 HTTP/1.1\r\nConnection: close\r\n"), &r));
    assert_true(!r.have && r.closes);
    assert_int_equal(r.chunk, 17);
    assert_true(inbound_peer_read(SLICE("GET /" HEX "/18446744073709551615 HTTP/1.1\r\n"), &r));
}

static void test_what_is_none(void **state)
{
    static const char *const bad[] = {
        "",
        "\r\n",
        "GET /" HEX "/17 HTTP/1.1\n",
        "GET /" HEX "/17 HTTP/1.0\r\n",
        "GET /" HEX "/17  HTTP/1.1\r\n",
        "GET /" HEX "/17\r\n",
        "POST /" HEX "/17 HTTP/1.1\r\n",
        "GET /" HEX " HTTP/1.1\r\n",
        "GET /" HEX "/ HTTP/1.1\r\n",
        "GET /" HEX "/-1 HTTP/1.1\r\n",
        "GET /" HEX "/1x HTTP/1.1\r\n",
        "GET /" HEX "/1/2 HTTP/1.1\r\n",
        "GET /" HEX "/18446744073709551616 HTTP/1.1\r\n",
        "GET /0/17 HTTP/1.1\r\n",
        "GET http://a/" HEX "/17 HTTP/1.1\r\n",
        "GET /" HEX "/17 HTTP/1.1\r\nContent-Length: 5\r\n",
        "GET /" HEX "/17 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
        "GET /" HEX "/17 HTTP/1.1\r\nno field\r\n",
        "GET /" HEX "/17 HTTP/1.1\r\nA: b\rc\r\n",
        "GET /" HEX "/17 HTTP/1.1\r\n: b\r\n",
    };
    struct inbound_peer_request r;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_false(inbound_peer_read(slice_str(bad[i]), &r));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_what_is_none),
        cmocka_unit_test(test_all_addresses_are_of_both_kinds),
        cmocka_unit_test(test_one_address_is_that_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
