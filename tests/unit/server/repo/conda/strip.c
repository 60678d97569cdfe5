#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/repo/conda/strip.h"

static void check(const char *text, int rc, const char *wanted)
{
    for (size_t step = 1; step <= 1000; step += 999) {
        struct buf out = BUF_INIT(1 << 20);
        struct strip *s = strip_open(&out);
        struct slice rest = slice_str(text);
        int got = 0;
        while (got == 0 && rest.n != 0) {
            struct slice piece = slice_first(rest, rest.n < step ? rest.n : step);
            got = strip_feed(s, piece, NULL);
            rest = slice_from(rest, piece.n);
        }
        got = got == 0 ? strip_finish(s, NULL) : got;
        assert_int_equal(got, rc);
        if (rc == 0) {
            assert_string_equal(buf_cstr(&out), wanted);
        }
        strip_close(&s);
        buf_free(&out);
    }
}

static void only_that_is_left_out(void **state)
{
    (void)state;
    check("{\"info\": {\"subdir\": \"a\", \"base_url\": \"https://x/\", "
          "\"z\": [1, {\"base_url\": 2}]}, "
          "\"packages\": {\"base_url\": {\"size\": 5e3, \"x\": null, "
          "\"y\": [true, -1.50], \"u\": \"\\u00e9\\\"\"}}}",
          0,
          "{\"info\":{\"subdir\":\"a\",\"z\":[1,{\"base_url\":2}]},\"packages\":{\"base_url\":{"
          "\"size\":5e3,\"x\":null,\"y\":[true,-1.50],\"u\":\"\xc3\xa9\\\"\"}}}");
    check("{\"info\":{\"base_url\":{\"a\":[1,2,{}]}}}", 0, "{\"info\":{}}");
    check("{\"info\":{\"base_url\":[[],\"x\"],\"a\":1},\"info\":{\"base_url\":null}}", 0,
          "{\"info\":{\"a\":1},\"info\":{}}");
    check("{\"base_url\":1}", 0, "{\"base_url\":1}");
    check("{\"a\":1", E_INVALID, NULL);
    check("<html>", E_INVALID, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_that_is_left_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
