#include "common/xfer/tcp.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <net/if.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/os/clock.h"

enum { PORTS = 8, PATIENCE_MS = 60000 };

/* Instead of the system's: "own-name" leads to where many a host's own name does, "two-addresses"
 * to one that does not listen, too, "here-and-elsewhere" to one of another machine, too. */
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **out)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    bool digits = hints != NULL && (hints->ai_flags & AI_NUMERICHOST) != 0;
    int rc;

    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (strcmp(name, "own-name") == 0 && !digits) {
        return real("127.0.1.1", service, hints, out);
    }
    if (strcmp(name, "two-addresses") == 0 && !digits) {
        rc = real("127.0.0.9", service, hints, out);
        return rc != 0 ? rc : real("127.0.0.2", service, hints, &(*out)->ai_next);
    }
    if (strcmp(name, "here-and-elsewhere") == 0 && !digits) {
        rc = real("127.0.0.2", service, hints, out);
        return rc != 0 ? rc : real("192.0.2.7", service, hints, &(*out)->ai_next);
    }
    return real(name, service, hints, out);
}

static struct tcp_limit patient(void)
{
    return (struct tcp_limit){.until_ms = clock_now_ms() + PATIENCE_MS, .wake = -1};
}

/* Below those that connections get. */
static unsigned some_port(void)
{
    return 10000 + (unsigned)(clock_now_ns() / 1000 % 20000);
}

static int listen_somewhere(const char *host, unsigned *port)
{
    int fd = -1, rc = E_AGAIN;

    for (int i = 0; rc == E_AGAIN && i < 100; i++) {
        *port = some_port();
        rc = tcp_listen(host, *port, 1, &fd, NULL);
    }
    assert_int_equal(rc, 0);
    assert_int_equal(tcp_port(fd), *port);
    return fd;
}

static struct sockaddr_storage address(const char *text)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *list;
    struct sockaddr_storage a = {0};

    assert_int_equal(getaddrinfo(text, NULL, &hints, &list), 0);
    memcpy(&a, list->ai_addr, list->ai_addrlen);
    freeaddrinfo(list);
    return a;
}

static bool reaches(const char *host, unsigned port)
{
    int fd;
    bool does = tcp_dial(host, port, patient(), &fd, NULL) == 0;

    if (fd != -1) {
        close(fd);
    }
    return does;
}

static void test_a_listener_is_at_its_address_alone(void **state)
{
    unsigned port;
    int fd = listen_somewhere("127.0.0.2", &port);

    (void)state;
    assert_true(reaches("127.0.0.2", port));
    assert_false(reaches("127.0.0.9", port));
    close(fd);
}

static void test_a_name_that_leads_to_loopback_listens_everywhere(void **state)
{
    unsigned port;
    int fd = listen_somewhere("own-name", &port);

    (void)state;
    assert_true(reaches("127.0.0.9", port));
    close(fd);
    fd = listen_somewhere("127.0.1.1", &port); /* in digits it is meant */
    assert_false(reaches("127.0.0.9", port));
    close(fd);
}

static void test_the_next_port(void **state)
{
    unsigned port;
    int first = listen_somewhere("127.0.0.2", &port), second;
    struct err why;

    (void)state;
    assert_int_equal(tcp_listen("127.0.0.2", port, 1, &second, &why), E_AGAIN);
    assert_int_equal(second, -1);
    assert_non_null(strstr(why.text, strerror(EADDRINUSE)));
    assert_int_equal(tcp_listen("127.0.0.2", port, PORTS, &second, NULL), 0);
    assert_in_range(tcp_port(second), port + 1, port + PORTS - 1);
    close(second);
    /* An address of another machine among a name's does not make the port a free one. */
    assert_int_equal(tcp_listen("here-and-elsewhere", port, 1, &second, &why), E_AGAIN);
    assert_non_null(strstr(why.text, strerror(EADDRINUSE)));
    assert_int_equal(tcp_listen("here-and-elsewhere", port, PORTS, &second, NULL), 0);
    assert_in_range(tcp_port(second), port + 1, port + PORTS - 1);
    close(first);
    close(second);
}

static void test_an_address_of_another_machine(void **state)
{
    struct err why;
    int fd;

    (void)state;
    assert_int_equal(tcp_listen("192.0.2.7", 1234, PORTS, &fd, &why), E_NOTFOUND);
    assert_string_equal(why.text, "192.0.2.7, ports 1234 to 1241: Cannot assign requested address");
    assert_int_equal(fd, -1);
}

static void test_a_connection(void **state)
{
    unsigned port;
    int fd = listen_somewhere("127.0.0.2", &port), there, here;
    struct tcp_limit over = {.until_ms = 0, .wake = -1};
    struct err why;
    char got[6] = "";

    (void)state;
    assert_int_equal(tcp_dial("127.0.0.9", port, patient(), &there, &why), E_NETWORK);
    assert_string_equal(why.text, "Connection refused");
    assert_int_equal(there, -1);
    assert_int_equal(tcp_dial("two-addresses", port, patient(), &there, NULL), 0);
    here = accept(fd, NULL, NULL);
    assert_true(here != -1);
    assert_int_equal(send(here, "hel", 3, 0), 3);
    assert_int_equal(tcp_receive(there, got, 3, patient()), 0);
    assert_int_equal(tcp_receive(there, got + 3, 2, over), E_TIMEOUT);
    assert_int_equal(send(here, "lo!", 3, 0), 3);
    assert_int_equal(tcp_receive(there, got + 3, 2, patient()), 0);
    assert_string_equal(got, "hello");
    close(here);
    assert_int_equal(tcp_receive(there, got, 2, patient()), E_NETWORK); /* "!" came */
    close(there);
    close(fd);
}

static void test_something_more_urgent_ends_the_wait(void **state)
{
    struct tcp_limit limit = patient();
    unsigned port;
    int fd = listen_somewhere("127.0.0.2", &port), there, urgent[2];
    char got;

    (void)state;
    assert_int_equal(pipe(urgent), 0);
    assert_int_equal(write(urgent[1], "", 1), 1);
    assert_int_equal(tcp_dial("127.0.0.2", port, limit, &there, NULL), 0);
    limit.wake = urgent[0];
    limit.until_ms = UINT64_MAX;
    assert_int_equal(tcp_receive(there, &got, 1, limit), E_TIMEOUT);
    close(urgent[0]);
    close(urgent[1]);
    close(there);
    close(fd);
}

static void test_what_is_this_machine_alone(void **state)
{
    static const struct {
        const char *text, *as;
        bool loopback;
    } x[] = {
        {"127.0.0.1", "127.0.0.1", true},
        {"127.9.9.9", "127.9.9.9", true},
        {"::1", "::1", true},
        {"::ffff:127.0.0.1", "127.0.0.1", true},
        {"::ffff:127.0.1.1", "127.0.1.1", true},
        {"128.0.0.1", "128.0.0.1", false},
        {"0.0.0.0", "0.0.0.0", false},
        {"::ffff:192.0.2.1", "192.0.2.1", false},
        {"::", "::", false},
        {"::7f00:1", "::127.0.0.1", false},
        {"2001:db8::7f00:1", "2001:db8::7f00:1", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++) {
        struct sockaddr_storage a = address(x[i].text);
        socklen_t n =
            a.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
        char text[TCP_ADDRESS_TEXT];

        assert_int_equal(tcp_is_loopback((struct sockaddr *)&a), x[i].loopback);
        tcp_address((struct sockaddr *)&a, n, text);
        assert_string_equal(text, x[i].as);
    }
    assert_false(tcp_is_loopback(&(struct sockaddr){.sa_family = AF_UNIX}));
}

static void test_a_link_local_address_keeps_its_interface(void **state)
{
    struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_scope_id = if_nametoindex("lo")};
    char text[TCP_ADDRESS_TEXT];

    (void)state;
    assert_int_equal(inet_pton(AF_INET6, "fe80::1", &a.sin6_addr), 1);
    tcp_address((struct sockaddr *)&a, sizeof a, text);
    assert_string_equal(text, "fe80::1%lo");
}

static void test_a_connection_that_is_not_link_local_says_nothing_of_interfaces(void **state)
{
    unsigned port;
    int fd = listen_somewhere("127.0.0.2", &port), there;
    char text[TCP_ADDRESS_TEXT] = "fe80::1%eth9";

    (void)state;
    assert_int_equal(tcp_dial("127.0.0.2", port, patient(), &there, NULL), 0);
    tcp_localize(there, text, sizeof text);
    assert_string_equal(text, "fe80::1%eth9");
    close(there);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_listener_is_at_its_address_alone),
        cmocka_unit_test(test_a_name_that_leads_to_loopback_listens_everywhere),
        cmocka_unit_test(test_the_next_port),
        cmocka_unit_test(test_an_address_of_another_machine),
        cmocka_unit_test(test_a_connection),
        cmocka_unit_test(test_something_more_urgent_ends_the_wait),
        cmocka_unit_test(test_what_is_this_machine_alone),
        cmocka_unit_test(test_a_link_local_address_keeps_its_interface),
        cmocka_unit_test(test_a_connection_that_is_not_link_local_says_nothing_of_interfaces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
