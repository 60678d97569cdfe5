#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/codec/network.h"

static bool inside(const char *block, const char *address)
{
    struct network n, a;

    assert_true(network_parse(slice_str(block), &n));
    assert_true(network_parse(slice_str(address), &a));
    return network_has(&n, a.address);
}

static void blocks(void **state)
{
    (void)state;
    assert_true(inside("10.0.0.0/8", "10.255.1.2"));
    assert_false(inside("10.0.0.0/8", "11.0.0.1"));
    assert_true(inside("192.0.2.128/25", "192.0.2.129"));
    assert_false(inside("192.0.2.128/25", "192.0.2.127"));
    assert_true(inside("0.0.0.0/0", "203.0.113.9"));
    assert_false(inside("0.0.0.0/0", "2001:db8::1"));
    assert_true(inside("::/0", "203.0.113.9"));
    assert_true(inside("10.0.0.0/8", "::ffff:10.1.1.1")); /* as a dual-stack socket says it */
    assert_true(inside("2001:db8::/33", "2001:db8:7fff::1"));
    assert_false(inside("2001:db8::/33", "2001:db8:8000::1"));
    assert_true(inside("192.0.2.7", "192.0.2.7"));
    assert_false(inside("192.0.2.7", "192.0.2.6"));
    assert_true(inside("::1/128", "::1"));
}

static void refused(void **state)
{
    static const char *const bad[] = {
        "",   "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/",   "10.0.0/8",  "::/129",
        "/8", "x",          "10.0.0.0/8x", "10.0.0.0/ 8", "fd00::1/8", "1.2.3.4.5"};
    struct network n;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_false(network_parse(slice_str(bad[i]), &n));
    }
    assert_false(network_parse(slice_of("10.0.0.0\0/8", 11), &n));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(blocks), cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
