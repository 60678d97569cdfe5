/* A part of the seats for one client, whatever the others do; who leaves makes room. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "server/gate/client_slots.h"
#include "server/http/msg.h"

enum { ALL = 64, OF_ONE = 32 };

static struct sockaddr_storage peer(const char *text)
{
    struct sockaddr_storage out = {.ss_family = AF_INET};

    if (inet_pton(AF_INET, text, &((struct sockaddr_in *)&out)->sin_addr) != 1) {
        out.ss_family = AF_INET6;
        assert_int_equal(inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)&out)->sin6_addr), 1);
    }
    return out;
}

static unsigned take(struct client_slots *s, const char *text)
{
    struct sockaddr_storage p = peer(text);

    return client_slots_take(s, client_of(&p));
}

static void half_for_one(void **state)
{
    struct client_slots s;
    unsigned slot[ALL];

    (void)state;
    client_slots_init(&s, ALL, OF_ONE);
    for (unsigned i = 0; i < OF_ONE; i++) {
        slot[i] = take(&s, "192.0.2.1");
        assert_int_not_equal(slot[i], 0);
    }
    assert_int_equal(take(&s, "192.0.2.1"), 0);
    assert_int_equal(take(&s, "::ffff:192.0.2.1"), 0); /* the same, on a socket for both */
    for (unsigned i = OF_ONE; i < ALL; i++) {
        slot[i] = take(&s, i % 2 != 0 ? "192.0.2.2" : "2001:db8::1");
        assert_int_not_equal(slot[i], 0);
    }
    assert_int_equal(take(&s, "192.0.2.3"), 0); /* all are taken */
    client_slots_leave(&s, &slot[0]);
    assert_int_equal(slot[0], 0);
    client_slots_leave(&s, &slot[0]);
    assert_int_not_equal(take(&s, "192.0.2.1"), 0);
    assert_int_equal(take(&s, "192.0.2.1"), 0);
    client_slots_fini(&s);
}

static void a_whole_network_is_one(void **state)
{
    struct client_slots s;

    (void)state;
    client_slots_init(&s, ALL, OF_ONE);
    for (unsigned i = 0; i < OF_ONE; i++) {
        assert_int_not_equal(take(&s, i % 2 != 0 ? "2001:db8::1" : "2001:db8::ffff:2"), 0);
    }
    assert_int_equal(take(&s, "2001:db8::3"), 0);
    assert_int_not_equal(take(&s, "2001:db8:0:1::3"), 0);
    assert_int_not_equal(take(&s, "::"), 0);
    client_slots_fini(&s);
}

/* An address until it is known who it is: then that one's part counts, and the address has room
 * again. */
static void a_client_that_says_who_it_is(void **state)
{
    struct client_slots s;
    unsigned slot[3];

    (void)state;
    client_slots_init(&s, 4, 2);
    slot[0] = client_slots_take(&s, 1);
    slot[1] = client_slots_take(&s, 1);
    assert_int_equal(client_slots_take(&s, 1), 0);
    assert_true(client_slots_move(&s, slot[0], 7));
    assert_true(client_slots_move(&s, slot[0], 7));
    slot[2] = client_slots_take(&s, 1);
    assert_int_not_equal(slot[2], 0);
    assert_true(client_slots_move(&s, slot[1], 7));
    assert_false(client_slots_move(&s, slot[2], 7));
    client_slots_leave(&s, &slot[0]);
    assert_true(client_slots_move(&s, slot[2], 7));
    client_slots_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_for_one),
        cmocka_unit_test(a_whole_network_is_one),
        cmocka_unit_test(a_client_that_says_who_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
