#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/codec/msgpack.h"

static void each_item(void **state)
{
    static const struct {
        const char *p;
        size_t n;
        enum mp_kind kind;
        uint64_t u;
        const char *text;
    } row[] = {
        {"\xc0", 1, MP_NIL, 0, NULL},
        {"\xc2", 1, MP_BOOL, 0, NULL},
        {"\xc3", 1, MP_BOOL, 1, NULL},
        {"\x7f", 1, MP_UINT, 127, NULL},
        {"\xe0", 1, MP_INT, 0, NULL},
        {"\xff", 1, MP_INT, 0, NULL},
        {"\xcc\xff", 2, MP_UINT, 255, NULL},
        {"\xcd\x01\x02", 3, MP_UINT, 258, NULL},
        {"\xce\0\1\0\0", 5, MP_UINT, 65536, NULL},
        {"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 9, MP_UINT, UINT64_MAX, NULL},
        {"\xd0\x05", 2, MP_UINT, 5, NULL},
        {"\xd0\x80", 2, MP_INT, 0x80, NULL},
        {"\xd3\x80\0\0\0\0\0\0\0", 9, MP_INT, UINT64_C(1) << 63, NULL},
        {"\xca\0\0\0\0", 5, MP_FLOAT, 0, NULL},
        {"\xcb\0\0\0\0\0\0\0\0", 9, MP_FLOAT, 0, NULL},
        {"\xa3"
         "abc",
         4, MP_STR, 0, "abc"},
        {"\xa0", 1, MP_STR, 0, ""},
        {"\xd9\x01"
         "a",
         3, MP_STR, 0, "a"},
        {"\xda\0\x01"
         "a",
         4, MP_STR, 0, "a"},
        {"\xdb\0\0\0\x01"
         "a",
         6, MP_STR, 0, "a"},
        {"\xc4\x01z", 3, MP_BIN, 0, "z"},
        {"\xc5\0\x01z", 4, MP_BIN, 0, "z"},
        {"\xc6\0\0\0\x01z", 6, MP_BIN, 0, "z"},
        {"\xd4\x05x", 3, MP_EXT, 0, "\5x"},
        {"\xd5\x05xy", 4, MP_EXT, 0, "\5xy"},
        {"\xc7\x02\x05xy", 5, MP_EXT, 0, "\5xy"},
        {"\xc8\0\x01\x05x", 5, MP_EXT, 0, "\5x"},
        {"\x90", 1, MP_ARRAY, 0, NULL},
        {"\x92\1\2", 3, MP_ARRAY, 2, NULL},
        {"\xdc\0\1\2", 4, MP_ARRAY, 1, NULL},
        {"\xdd\0\0\0\1\2", 6, MP_ARRAY, 1, NULL},
        {"\x81\1\2", 3, MP_MAP, 1, NULL},
        {"\xde\0\1\1\2", 5, MP_MAP, 1, NULL},
        {"\xdf\0\0\0\1\1\2", 7, MP_MAP, 1, NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct slice all = slice_of(row[i].p, row[i].n), rest = all;
        struct mp_item it;
        assert_int_equal(mp_next(&rest, &it, NULL), 0);
        assert_int_equal(it.kind, row[i].kind);
        if (row[i].text != NULL) {
            assert_true(slice_eqs(it.bytes, row[i].text));
            assert_int_equal(rest.n, 0);
        } else {
            assert_true(it.u == row[i].u || it.kind == MP_FLOAT || it.kind == MP_INT);
        }
        rest = all;
        assert_int_equal(mp_skip(&rest, NULL), 0);
        assert_int_equal(rest.n, 0);
        for (size_t n = 0; n < all.n; n++) { /* cut anywhere */
            rest = slice_first(all, n);
            assert_int_equal(mp_skip(&rest, NULL), E_INVALID);
        }
    }
}

static void what_promises_too_much(void **state)
{
    static const struct {
        const char *p;
        size_t n;
    } row[] = {
        {"\xdd\xff\xff\xff\xff\1", 6}, {"\xdf\xff\xff\xff\xff\1\1", 7},
        {"\xc6\xff\xff\xff\xff", 5},   {"\xc1", 1},
        {"\x92\x92\1\2", 4},           {"\x91\x91\x91", 3},
        {"\xdf\x80\0\0\0\1\1", 7},     {"", 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct slice rest = slice_of(row[i].p, row[i].n);
        assert_int_equal(mp_skip(&rest, NULL), E_INVALID);
    }
}

/* As deep as it is long: no stack is used up. */
static void nesting(void **state)
{
    struct buf b = BUF_INIT(8 << 20);
    struct slice rest;

    (void)state;
    for (int i = 0; i < 4 << 20; i++) {
        buf_byte(&b, 0x91);
    }
    rest = buf_slice(&b);
    assert_int_equal(mp_skip(&rest, NULL), E_INVALID);
    buf_byte(&b, 0x01);
    rest = buf_slice(&b);
    assert_int_equal(mp_skip(&rest, NULL), 0);
    buf_free(&b);
}

static void texts_of_each_length(void **state)
{
    static const size_t length[] = {0, 31, 32, 255, 256, 65535, 65536};
    struct buf text = BUF_INIT(1 << 20), out = BUF_INIT(1 << 20);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(length); i++) {
        struct slice rest;
        struct mp_item it;
        while (text.n < length[i]) {
            buf_byte(&text, 'x');
        }
        buf_clear(&out);
        mp_put_str(&out, buf_slice(&text));
        rest = buf_slice(&out);
        assert_int_equal(mp_next(&rest, &it, NULL), 0);
        assert_int_equal(it.kind, MP_STR);
        assert_true(slice_eq(it.bytes, buf_slice(&text)) && rest.n == 0);
    }
    buf_free(&text);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_item),
        cmocka_unit_test(what_promises_too_much),
        cmocka_unit_test(nesting),
        cmocka_unit_test(texts_of_each_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
