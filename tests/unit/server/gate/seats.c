/* Half of the seats for one client, whatever the others do; who leaves makes room. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "server/gate/seats.h"

static struct sockaddr_storage peer(const char *text)
{
    struct sockaddr_storage out = {.ss_family = AF_INET};

    if (inet_pton(AF_INET, text, &((struct sockaddr_in *)&out)->sin_addr) != 1) {
        out.ss_family = AF_INET6;
        assert_int_equal(inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)&out)->sin6_addr), 1);
    }
    return out;
}

static unsigned take(struct seats *s, const char *text)
{
    struct sockaddr_storage p = peer(text);

    return seats_take(s, &p);
}

static void half_for_one(void **state)
{
    struct seats s = {0};
    unsigned seat[SEATS];

    (void)state;
    for (unsigned i = 0; i < SEATS_OF_ONE; i++) {
        seat[i] = take(&s, "192.0.2.1");
        assert_int_not_equal(seat[i], 0);
    }
    assert_int_equal(take(&s, "192.0.2.1"), 0);
    assert_int_equal(take(&s, "::ffff:192.0.2.1"), 0); /* the same, on a socket for both */
    for (unsigned i = SEATS_OF_ONE; i < SEATS; i++) {
        seat[i] = take(&s, i % 2 != 0 ? "192.0.2.2" : "2001:db8::1");
        assert_int_not_equal(seat[i], 0);
    }
    assert_int_equal(take(&s, "192.0.2.3"), 0); /* all are taken */
    seats_leave(&s, &seat[0]);
    assert_int_equal(seat[0], 0);
    seats_leave(&s, &seat[0]);
    assert_int_not_equal(take(&s, "192.0.2.1"), 0);
    assert_int_equal(take(&s, "192.0.2.1"), 0);
}

static void a_whole_network_is_one(void **state)
{
    struct seats s = {0};

    (void)state;
    for (unsigned i = 0; i < SEATS_OF_ONE; i++) {
        assert_int_not_equal(take(&s, i % 2 != 0 ? "2001:db8::1" : "2001:db8::ffff:2"), 0);
    }
    assert_int_equal(take(&s, "2001:db8::3"), 0);
    assert_int_not_equal(take(&s, "2001:db8:0:1::3"), 0);
    assert_int_not_equal(take(&s, "::"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_for_one),
        cmocka_unit_test(a_whole_network_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
