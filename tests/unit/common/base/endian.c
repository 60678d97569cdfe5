#include "common/base/endian.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "common/base/buf.h"

static const uint64_t some[] = {0, 1, 0xff, 0x100, 0xdeadbeef, 0x0123456789abcdef, UINT64_MAX};

static uint64_t low(uint64_t v, unsigned bytes)
{
    return bytes == 8 ? v : v & (((uint64_t)1 << 8 * bytes) - 1);
}

static void the_order_of_bytes(void **state)
{
    uint8_t p[4] = {9, 9, 9, 9};

    (void)state;
    be_put(p, 3, 0x123456);
    assert_memory_equal(p, "\x12\x34\x56\x09", 4);
    le_put(p, 3, 0x123456);
    assert_memory_equal(p, "\x56\x34\x12\x09", 4);
    assert_int_equal(be_get("\x80\x00", 2), 0x8000);
    assert_int_equal(le_get("\x80\x00", 2), 0x80);
}

static void every_width_comes_back(void **state)
{
    (void)state;
    for (unsigned bytes = 1; bytes <= 8; bytes++) {
        for (size_t i = 0; i < ARRAY_LEN(some); i++) {
            struct buf b = BUF_INIT(100);
            struct slice rest;
            uint64_t be, le;

            buf_be(&b, bytes, some[i]);
            buf_le(&b, bytes, some[i]);
            rest = buf_slice(&b);
            assert_true(slice_be(&rest, bytes, &be) && slice_le(&rest, bytes, &le));
            assert_int_equal(be, low(some[i], bytes));
            assert_int_equal(le, low(some[i], bytes));
            assert_int_equal(rest.n, 0);
            assert_false(slice_be(&rest, bytes, &be) || slice_le(&rest, bytes, &le));
            buf_free(&b);
        }
    }
}

static void texts_behind_their_length(void **state)
{
    struct buf b = BUF_INIT(1000);
    char long_text[256] = {0};
    struct slice rest, s;

    (void)state;
    buf_counted(&b, 1, SLICE("ab"));
    buf_counted(&b, 2, SLICE(""));
    buf_counted(&b, 8, slice_of(long_text, sizeof long_text));
    rest = buf_slice(&b);
    assert_true(slice_counted(&rest, 1, &s) && slice_eq(s, SLICE("ab")));
    assert_true(slice_counted(&rest, 2, &s) && s.n == 0);
    assert_true(slice_counted(&rest, 8, &s) && s.n == sizeof long_text);
    assert_int_equal(rest.n, 0);
    buf_counted(&b, 1, slice_of(long_text, sizeof long_text)); /* 256 */
    assert_int_equal(b.rc, E_TOOBIG);
    buf_free(&b);
}

static void what_is_cut_short(void **state)
{
    static const char huge[] = "\xff\xff\xff\xff\xff\xff\xff\xff";
    struct slice rest = SLICE("\0"), s;

    (void)state;
    assert_false(slice_counted(&rest, 2, &s));
    rest = SLICE("\0\3ab");
    assert_false(slice_counted(&rest, 2, &s));
    rest = slice_of(huge, 8);
    assert_false(slice_counted(&rest, 8, &s));
    rest = SLICE("abc");
    assert_false(slice_take(&rest, 4, &s));
    assert_int_equal(rest.n, 3);
    assert_true(slice_take(&rest, 3, &s) && rest.n == 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_order_of_bytes),
        cmocka_unit_test(every_width_comes_back),
        cmocka_unit_test(texts_behind_their_length),
        cmocka_unit_test(what_is_cut_short),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
