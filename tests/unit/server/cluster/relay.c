#include "server/cluster/relay.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#define NODE "0123456789abcdef0123456789abcdef"

struct passed {
    struct http_field fields[2];
    struct sockaddr_storage peer;
    struct http_req req;
    char hop[RELAY_FIELD_ROOM];
};

static void pass(struct passed *p, const struct relay *r, const char *address)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)&p->peer;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&p->peer;

    *p = (struct passed){0};
    v4->sin_family = AF_INET;
    if (inet_pton(AF_INET, address, &v4->sin_addr) != 1) {
        v6->sin6_family = AF_INET6;
        assert_int_equal(inet_pton(AF_INET6, address, &v6->sin6_addr), 1);
    }
    p->fields[0] = (struct http_field){SLICE("authorization"), SLICE("Bearer mrd_1_2_3")};
    p->fields[1].name = SLICE(RELAY_FIELD);
    p->req = (struct http_req){.method_text = SLICE("PUT"),
                               .target = SLICE("/models/me/x?a=b"),
                               .host = SLICE("mirror.example"),
                               .tls = true,
                               .peer = &p->peer,
                               .fields = p->fields,
                               .nfields = 2};
    relay_sign(r, &p->req, p->req.target, p->hop);
    p->fields[1].value = slice_str(p->hop);
}

static bool is_read(const struct relay *r, const struct passed *p)
{
    struct sockaddr_storage peer;
    bool tls;

    return relay_read(r, &p->req, &peer, &tls);
}

static void the_client_is_told(void **state)
{
    static const char *const addresses[] = {"192.0.2.7", "2001:db8::7"};
    struct relay *r = relay_open("secret", NODE, NULL);
    struct sockaddr_storage peer;
    struct passed p;
    uint8_t want[ADDRESS_BYTES], got[ADDRESS_BYTES];
    bool tls = false;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(addresses); i++) {
        pass(&p, r, addresses[i]);
        assert_true(relay_read(r, &p.req, &peer, &tls));
        assert_true(tls);
        address_of(&p.peer, want);
        address_of(&peer, got);
        assert_memory_equal(want, got, sizeof want);
    }
    relay_close(&r);
}

static void nothing_can_be_changed(void **state)
{
    struct relay *r = relay_open("secret", NODE, NULL), *other = relay_open("other", NODE, NULL);
    struct passed p;
    size_t n;

    (void)state;
    pass(&p, r, "192.0.2.7");
    assert_true(is_read(r, &p));
    assert_false(is_read(other, &p));
    n = strlen(p.hop);
    for (size_t i = 0; i < n; i++) { /* any byte of the field; and where it ends */
        p.hop[i] ^= 1;
        assert_false(is_read(r, &p));
        p.hop[i] ^= 1;
        p.fields[1].value = slice_first(slice_str(p.hop), i);
        assert_false(is_read(r, &p));
        p.fields[1].value = slice_str(p.hop);
    }
    p.req.method_text = SLICE("GET");
    assert_false(is_read(r, &p));
    pass(&p, r, "192.0.2.7");
    p.req.target = SLICE("/models/me/y?a=b");
    assert_false(is_read(r, &p));
    pass(&p, r, "192.0.2.7");
    p.req.host = SLICE("mirror.example:1");
    assert_false(is_read(r, &p));
    pass(&p, r, "192.0.2.7");
    p.fields[0].value = SLICE("Bearer mrd_1_2_4");
    assert_false(is_read(r, &p));
    pass(&p, r, "192.0.2.7"); /* what one part loses, the next one does not gain */
    p.req.method_text = SLICE("PUT/");
    p.req.target = slice_from(p.req.target, 1);
    assert_false(is_read(r, &p));
    relay_close(&r);
    relay_close(&other);
}

static void a_head_may_be_large(void **state)
{
    struct relay *r = relay_open("secret", NODE, NULL);
    size_t n = 1 << 20; /* http { header } allows that */
    char *target = mem_array(n, 1);
    struct passed p;

    (void)state;
    memset(target, 'x', n);
    pass(&p, r, "192.0.2.7");
    p.req.target = slice_of(target, n);
    assert_false(is_read(r, &p));
    relay_sign(r, &p.req, p.req.target, p.hop);
    p.fields[1].value = slice_str(p.hop);
    assert_true(is_read(r, &p));
    free(target);
    relay_close(&r);
}

static void what_nobody_has(void **state)
{
    struct relay *r = relay_open("secret", NODE, NULL);

    (void)state;
    assert_false(relay_is_absent(r, SLICE("a")));
    relay_note_absent(r, SLICE("a"));
    assert_true(relay_is_absent(r, SLICE("a")));
    assert_false(relay_is_absent(r, SLICE("b")));
    assert_true(slice_eqs(relay_digits(r), "0123456789ab"));
    relay_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_client_is_told),
        cmocka_unit_test(nothing_can_be_changed),
        cmocka_unit_test(a_head_may_be_large),
        cmocka_unit_test(what_nobody_has),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
