#include "common/codec/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static void test_every_character(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        char bytes[4];
        size_t n = utf8_put(c, bytes), length;
        bool surrogate = c >= 0xd800 && c < 0xe000;

        assert_int_equal(utf8_next(slice_of(bytes, n), &length),
                         surrogate ? UTF8_NONE : UTF8_WHOLE);
        if (!surrogate) {
            assert_int_equal(length, n);
            assert_int_equal(utf8_char(slice_of(bytes, n)), c);
        }
        for (size_t cut = 1; cut < n && !surrogate; cut++) {
            assert_int_equal(utf8_next(slice_of(bytes, cut), &length), UTF8_CUT);
            assert_int_equal(length, cut);
        }
    }
}

/* `want` has '?' for each U+FFFD. */
static void check(const char *in, size_t n, bool more, const char *want, size_t want_used)
{
    struct buf out = BUF_INIT(1000), plain = BUF_INIT(1000);
    uint64_t replaced, marks = 0;
    size_t used;

    replaced = utf8_clean(slice_of(in, n), more, &out, &used);
    for (const char *p = want; *p != '\0'; p++) {
        if (*p == '?') {
            buf_str(&plain, "\xef\xbf\xbd");
            marks++;
        } else {
            buf_byte(&plain, (uint8_t)*p);
        }
    }
    assert_true(slice_eq(buf_slice(&out), buf_slice(&plain)));
    assert_int_equal(replaced, marks);
    assert_int_equal(used, want_used);
    buf_free(&out);
    buf_free(&plain);
}

#define CHECK_CLEAN(in, more, want, used) check(in, sizeof(in) - 1, more, want, used)

static void test_cleaning(void **state)
{
    (void)state;
    CHECK_CLEAN("", false, "", 0);
    CHECK_CLEAN("plain text, longer than eight", false, "plain text, longer than eight", 29);
    CHECK_CLEAN("12345678\xff", false, "12345678?", 9);
    /* One for each maximal part: Unicode 15, table 3-8 and its neighbours. */
    CHECK_CLEAN("a\xc0\xaf\xe0\x80\xbf\xf0\x81\x82z", false, "a????????z", 10);
    CHECK_CLEAN("\xed\xa0\x80\xed\xbf\xbf.", false, "??????.", 7);
    CHECK_CLEAN("\xf4\x91\x92\x93\xff"
                "A\x80\xbf"
                "B",
                false, "?????A??B", 9);
    CHECK_CLEAN("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf"
                "A",
                false, "????A", 9);
    /* A character cut at the end waits when more comes. */
    CHECK_CLEAN("x\xf0\x9f\x98", false, "x?", 4);
    CHECK_CLEAN("x\xf0\x9f\x98", true, "x", 1);
    CHECK_CLEAN("x\xf0\x9f\x98\x80", true, "x\xf0\x9f\x98\x80", 5);
    CHECK_CLEAN("x\xf0\x9f\x20", true, "x? ", 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_character),
        cmocka_unit_test(test_cleaning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
