#include "agent/slurm/comment.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/buf.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void test_names(void **state)
{
    struct wishes w = {.n = 0};

    (void)state;
    assert_int_equal(comment_read(SLICE(" run 7\tmirror=hf/a/b@main,d/x.bin?,d/y#sha256=" HEX
                                        ",models/me/gpt@v3/ and more"),
                                  &w, NULL),
                     0);
    assert_int_equal(w.n, 4);
    assert_true(slice_eqs(w.one[0].from, "hf/a/b@main") && !w.one[0].optional);
    assert_true(slice_eqs(w.one[1].from, "d/x.bin") && w.one[1].optional);
    assert_true(slice_eqs(w.one[2].from, "d/y#sha256=" HEX));
    assert_true(slice_eqs(w.one[3].from, "models/me/gpt@v3/"));
    assert_true(slice_eqs(wish_place(w.one[2].from), "d/y"));
    assert_true(slice_eqs(wish_place(w.one[3].from), "models/me/gpt@v3"));
}

static void test_not_for_us(void **state)
{
    static const char *const text[] = {"",           "   ",       "hello", "amirror=d/x",
                                       "Mirror=d/x", "mirror d/x"};
    struct wishes w = {.n = 0};
    char *large = mem_new(COMMENT_MAX + 100);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(text); i++) {
        assert_int_equal(comment_read(slice_str(text[i]), &w, NULL), 0);
        assert_int_equal(w.n, 0);
    }
    assert_int_equal(comment_read(SLICE_NONE, &w, NULL), 0);
    memset(large, 'x', COMMENT_MAX + 50);
    assert_int_equal(comment_read(slice_str(large), &w, NULL), 0);
    memcpy(large + COMMENT_MAX, " mirror=a/b", 11);
    assert_int_equal(comment_read(slice_str(large), &w, NULL), E_INVALID);
    free(large);
}

static void test_what_breaks_the_rules(void **state)
{
    static const char *const text[] = {
        "mirror=",
        "mirror=d",
        "mirror=d/",
        "mirror=d/x,",
        "mirror=,d/x",
        "mirror=d/x,,d/y",
        "mirror=/d/x",
        "mirror=d//x",
        "mirror=d/../x",
        "mirror=d/./x",
        "mirror=../x",
        "mirror=d/x/..",
        "mirror=-/blob/x",
        "mirror=--to/x",
        "mirror=d/-x",
        "mirror=http://h/x",
        "mirror=d/x?y",
        "mirror=d/x??",
        "mirror=d/%2e",
        "mirror=d/x#sha256=12",
        "mirror=d/x#",
        "mirror=d/x#md5=12",
        "mirror=d/*",
        "mirror=d/$x",
        "mirror=d/x;y",
        "mirror=d/x|y",
        "mirror=d/`x`",
        "mirror=d/x\\y",
        "mirror=d/x\"",
        "mirror=d/x\x01",
        "mirror=d/\xc3\xa4",
        "mirror=a/b mirror=c/d",
        "mirror=d/x#sha256=0000000000000000000000000000000000000000000000000000000000000000"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(text); i++) {
        struct wishes w = {.n = 0};
        struct err why = {0};
        assert_int_equal(comment_read(slice_str(text[i]), &w, &why), E_INVALID);
        for (const char *c = why.text; *c != '\0'; c++) {
            assert_true((uint8_t)*c >= 0x20 && (uint8_t)*c < 0x7f);
        }
    }
}

static void test_bounds(void **state)
{
    struct buf text = BUF_INIT(64 << 10);
    struct wishes w = {.n = 0};

    (void)state;
    buf_str(&text, "mirror=d/0");
    for (int i = 1; i < WISHES_MAX; i++) {
        buf_addf(&text, ",d/%d", i);
    }
    assert_int_equal(comment_read(buf_slice(&text), &w, NULL), 0);
    assert_int_equal(w.n, WISHES_MAX);
    buf_str(&text, ",d/more");
    w.n = 0;
    assert_int_equal(comment_read(buf_slice(&text), &w, NULL), E_INVALID);
    buf_clear(&text);
    buf_str(&text, "mirror=d/");
    for (int i = 0; i < 300; i++) {
        buf_byte(&text, 'x');
    }
    w.n = 0;
    assert_int_equal(comment_read(buf_slice(&text), &w, NULL), E_INVALID);
    buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_not_for_us),
        cmocka_unit_test(test_what_breaks_the_rules),
        cmocka_unit_test(test_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
