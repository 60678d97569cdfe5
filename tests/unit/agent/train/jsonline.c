#include "agent/train/jsonline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static void test_lines(void **state)
{
    static const struct {
        const char *line, *text, *says; /* one of the two */
    } row[] = {
        {"{\"text\":\"a\"}", "a", NULL},
        {" {\"id\": 7e400, \"text\" : \"\\u00e9\\n\\ud83d\\ude00\\\"\" , \"x\":{\"text\":1}} ",
         "\xc3\xa9\n\xf0\x9f\x98\x80\"", NULL},
        {"{\"text\":\"\"}", "", NULL},
        {"{\"text\":\"a\\u0000b\"}", "a", NULL}, /* as far as strcmp sees */
        {"{\"text\":\"a\",\"text\":\"b\"}", "b", NULL},
        {"{\"meta\":{\"text\":\"inner\"},\"text\":\"outer\",\"more\":[{\"text\":\"x\"}]}", "outer",
         NULL},
        {"{\"text\":\"\xff\"}", "\xff", NULL},
        {"{\"text\":\"a\",\"text\":1}", NULL, "no string"},
        {"{\"meta\":{\"text\":\"inner\"}}", NULL, "no string"},
        {"{\"Text\":\"a\"}", NULL, "no string"},
        {"{\"text\":null}", NULL, "no string"},
        {"{\"text\":true}", NULL, "no string"},
        {"{\"text\":[\"a\"]}", NULL, "no string"},
        {"{\"text\":{\"text\":\"a\"}}", NULL, "no string"},
        {"[{\"text\":\"a\"}]", NULL, "not a JSON object"},
        {"\"text\"", NULL, "not a JSON object"},
        {"", NULL, "the line is not valid JSON"},
        {"{", NULL, "the line is not valid JSON"},
        {"{\"text\":\"a\"", NULL, "the line is not valid JSON"},
        {"{\"text\":\"a\"}}", NULL, "the line is not valid JSON"},
        {"{\"text\":\"a\"}{\"text\":\"b\"}", NULL, "the line is not valid JSON"},
        {"{\"text\":\"a\x01\"}", NULL, "the line is not valid JSON"},
        {"{'text':'a'}", NULL, "the line is not valid JSON"},
        {"text", NULL, "the line is not valid JSON"},
    };
    struct buf out = BUF_INIT(1000);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct err e = {0};
        int rc = jsonline_text(slice_str(row[i].line), SLICE("text"), &out, &e);

        if (row[i].text != NULL ? rc != 0 || strcmp(buf_cstr(&out), row[i].text) != 0
                                : rc != E_CORRUPT || strstr(e.text, row[i].says) == NULL) {
            fail_msg("%s: %d %s", row[i].line, rc, e.text);
        }
    }
    buf_free(&out);
}

static void test_depth_and_size(void **state)
{
    struct buf line = BUF_INIT(1 << 20), out = BUF_INIT(10);

    (void)state;
    for (int i = 0; i < 100000; i++) {
        buf_byte(&line, '[');
    }
    assert_int_equal(jsonline_text(buf_slice(&line), SLICE("text"), &out, NULL), E_CORRUPT);
    assert_int_equal(jsonline_text(SLICE("{\"text\":\"01234567890\"}"), SLICE("text"), &out, NULL),
                     E_TOOBIG);
    assert_int_equal(jsonline_text(SLICE("{\"text\":\"0\"}"), SLICE("text"), &out, NULL), 0);
    buf_free(&line);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_depth_and_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
