#include "common/codec/jwrite.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static void test_every_kind_of_value(void **state)
{
    struct buf out = BUF_INIT(4096);

    (void)state;
    jwrite_open(&out, NULL, '{');
    jwrite_str(&out, "str", "s");
    jwrite_str(&out, "none", NULL);
    jwrite_text(&out, "text", SLICE("t"));
    jwrite_u64(&out, "u64", UINT64_MAX);
    jwrite_bool(&out, "yes", true);
    jwrite_bool(&out, "no", false);
    jwrite_null(&out, "null");
    jwrite_double(&out, "double", 0.25);
    jwrite_ratio(&out, "ratio", 0.5);
    jwrite_hex(&out, "hex", (const uint8_t *)"\x00\x9f\xff", 3);
    jwrite_word(&out, "word", SLICE("[]"));
    jwrite_key(&out, SLICE("k\"ey"));
    jwrite_u64(&out, NULL, 1);
    jwrite_close(&out, '}');
    assert_string_equal(buf_cstr(&out),
                        "{\"str\":\"s\",\"none\":\"\",\"text\":\"t\",\"u64\":18446744073709551615,"
                        "\"yes\":true,\"no\":false,\"null\":null,\"double\":0.25,\"ratio\":0.5000,"
                        "\"hex\":\"009fff\",\"word\":[],\"k\\\"ey\":1}");
    buf_free(&out);
}

static void test_commas(void **state)
{
    struct buf out = BUF_INIT(4096);
    size_t before;

    (void)state;
    jwrite_open(&out, NULL, '[');
    jwrite_open(&out, NULL, '{');
    jwrite_close(&out, '}');
    jwrite_open(&out, NULL, '[');
    jwrite_u64(&out, NULL, 0);
    jwrite_str(&out, NULL, "ends like a key:");
    jwrite_str(&out, NULL, "and an object{");
    before = out.n;
    jwrite_open(&out, NULL, '{');
    jwrite_open(&out, "a", '[');
    out.n = before; /* thought better of */
    jwrite_close(&out, ']');
    jwrite_null(&out, NULL);
    jwrite_close(&out, ']');
    buf_byte(&out, '\n');
    jwrite_open(&out, NULL, '{'); /* the next line */
    jwrite_close(&out, '}');
    assert_string_equal(buf_cstr(&out),
                        "[{},[0,\"ends like a key:\",\"and an object{\"],null]\n{}");
    buf_free(&out);
}

static void test_texts_from_outside(void **state)
{
    struct buf out = BUF_INIT(4096);

    (void)state;
    jwrite_text(&out, NULL, slice_of("\"\\\0\n\x7f\xc3\xa4\xff", 8));
    assert_string_equal(buf_cstr(&out), "\"\\\"\\\\\\u0000\\u000a\\u007f\xc3\xa4\xef\xbf\xbd\"");
    buf_free(&out);
}

static void test_the_buffer_keeps_its_error(void **state)
{
    struct buf out = BUF_INIT(16);

    (void)state;
    jwrite_open(&out, NULL, '{');
    jwrite_str(&out, "key", "a value too long");
    jwrite_close(&out, '}');
    assert_int_equal(out.rc, E_TOOBIG);
    buf_free(&out);
}

static void test_an_error_and_the_line_to_blame(void **state)
{
    struct buf out = BUF_INIT(4096);
    struct err e;

    (void)state;
    err_set(&e, E_CONFIG, "a:b.conf:3: no such key");
    jwrite_open(&out, NULL, '{');
    jwrite_err(&out, "error", &e);
    jwrite_close(&out, '}');
    assert_string_equal(buf_cstr(&out),
                        "{\"error\":{\"code\":\"E_CONFIG\",\"exit\":78,"
                        "\"text\":\"a:b.conf:3: no such key\",\"file\":\"a:b.conf\",\"line\":3}}");
    buf_clear(&out);
    err_set(&e, E_IO, "a:3: not a configuration's line");
    jwrite_err(&out, NULL, &e);
    assert_null(strstr(buf_cstr(&out), "line\":"));
    buf_free(&out);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_of_value),
        cmocka_unit_test(test_commas),
        cmocka_unit_test(test_texts_from_outside),
        cmocka_unit_test(test_the_buffer_keeps_its_error),
        cmocka_unit_test(test_an_error_and_the_line_to_blame),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
