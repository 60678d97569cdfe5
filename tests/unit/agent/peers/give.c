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
    struct gifts *gifts = gifts_open();
    struct give *g = NULL;
    struct err e;

    (void)state;
    assert_int_equal(give_open(gifts, "::", 0, 1, &g, &e), 0);
    assert_int_equal(call4(give_port(g)), 0);
    assert_int_equal(has_ipv6() ? call6(give_port(g)) : 0, 0);
    give_close(&g);
    gifts_close(&gifts);
}

static void test_one_address_is_that_one(void **state)
{
    struct gifts *gifts = gifts_open();
    struct give *g = NULL;
    struct err e;

    (void)state;
    assert_int_equal(give_open(gifts, "127.0.0.1", 0, 1, &g, &e), 0);
    assert_int_equal(call4(give_port(g)), 0);
    assert_true(!has_ipv6() || call6(give_port(g)) != 0);
    give_close(&g);
    assert_int_equal(give_open(gifts, "nowhere", 0, 1, &g, &e), E_CONFIG);
    gifts_close(&gifts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_addresses_are_of_both_kinds),
        cmocka_unit_test(test_one_address_is_that_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
