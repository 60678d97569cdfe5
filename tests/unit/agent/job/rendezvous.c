#include "agent/job/rendezvous.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_a_message_comes_back(void **state)
{
    struct rdzv_message m = {.type = RDZV_WORLD,
                             .generation = 1,
                             .node = 2,
                             .ranks = 3,
                             .min = 4,
                             .max = 5,
                             .code = 6,
                             .by_signal = 7,
                             .allow_ms = 8,
                             .nodes = 9,
                             .first = 10,
                             .world = UINT32_MAX,
                             .port = 12,
                             .text = "why"};
    struct rdzv_message got;
    struct buf b = BUF_INIT(4096), part = BUF_INIT(4096);

    (void)state;
    rdzv_encode(&m, &b);
    for (size_t n = 0; n < b.n; n++) { /* byte by byte: it is not whole before the last */
        buf_clear(&part);
        buf_add(&part, b.p, n);
        assert_int_equal(rdzv_decode(&part, &got), 0);
        assert_int_equal(part.n, n);
    }
    memset(m.text, 'x', sizeof m.text - 1);
    rdzv_encode(&m, &b);
    assert_int_equal(rdzv_decode(&b, &got), 1);
    assert_string_equal(got.text, "why");
    assert_int_equal(rdzv_decode(&b, &got), 1);
    assert_memory_equal(&got, &m, sizeof m);
    assert_int_equal(b.n, 0);
    buf_free(&b);
    buf_free(&part);
}

static void test_lengths_that_cannot_be(void **state)
{
    static const unsigned bad[] = {0, 1, 48, 49 + RDZV_TEXT, 65535};
    struct rdzv_message got;
    struct buf b = BUF_INIT(4096);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        buf_clear(&b);
        buf_be(&b, 2, bad[i]);
        assert_int_equal(rdzv_decode(&b, &got), E_PROTOCOL);
    }
    buf_free(&b);
}

/* By Python's hmac, of sha256(b"job") as the key. */
static void test_the_proof(void **state)
{
    static const uint8_t want[RDZV_MAC] = {0x09, 0x0a, 0x82, 0xc4, 0xe7, 0x33, 0x25, 0x03,
                                           0xa7, 0x06, 0x3e, 0xc6, 0x9d, 0x49, 0xe7, 0x25,
                                           0xdd, 0xfe, 0xa3, 0xd8, 0xd8, 0x2f, 0xbd, 0x91,
                                           0x92, 0xe5, 0xf1, 0x0b, 0x5e, 0x75, 0xc7, 0xb6};
    uint8_t service[RDZV_NONCE], agent[RDZV_NONCE], mac[RDZV_MAC];

    (void)state;
    memset(service, 's', sizeof service);
    memset(agent, 'a', sizeof agent);
    rdzv_mac("job", "agent", service, agent, mac);
    assert_true(rdzv_same(mac, want, sizeof want));
    rdzv_mac("job", "service", service, agent, mac);
    assert_false(rdzv_same(mac, want, sizeof want));
    rdzv_mac("jab", "agent", service, agent, mac);
    assert_false(rdzv_same(mac, want, sizeof want));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_message_comes_back),
        cmocka_unit_test(test_lengths_that_cannot_be),
        cmocka_unit_test(test_the_proof),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
