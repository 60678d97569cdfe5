#include "agent/peers/guest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void test_requests(void **state)
{
    struct guest_request r;

    (void)state;
    assert_true(guest_read(SLICE("GET /" HEX "/have HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n"), &r));
    assert_true(r.have && !r.closes && slice_eqs(r.digest_hex, HEX));
    assert_true(guest_read(SLICE("GET /" HEX "/17 HTTP/1.1\r\nConnection: close\r\n"), &r));
    assert_true(!r.have && r.closes);
    assert_int_equal(r.chunk, 17);
    assert_true(guest_read(SLICE("GET /" HEX "/18446744073709551615 HTTP/1.1\r\n"), &r));
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
    struct guest_request r;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_false(guest_read(slice_str(bad[i]), &r));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_what_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
