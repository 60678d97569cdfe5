#include "common/codec/jread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static json_t *parsed(const char *text)
{
    json_t *o = json_loads(text, JSON_ALLOW_NUL, NULL);

    assert_non_null(o);
    return o;
}

static void test_texts(void **state)
{
    json_t *o = parsed("{\"a\": \"x\\u0000y\", \"none\": \"\", \"n\": 1, \"z\": null}");

    (void)state;
    assert_true(slice_eq(jread_text(o, "a"), SLICE("x\0y")));
    assert_true(jread_text(o, "none").p != NULL && jread_text(o, "none").n == 0);
    assert_null(jread_text(o, "n").p);
    assert_null(jread_text(o, "z").p);
    assert_null(jread_text(o, "b").p);
    json_decref(o);
}

static void test_numbers(void **state)
{
    json_t *o = parsed("{\"a\": 9223372036854775807, \"z\": 0, \"neg\": -1, \"real\": 1.0, "
                       "\"text\": \"1\", \"list\": [7]}");
    static const char *const none[] = {"neg", "real", "text", "list", "b"};
    uint64_t n;

    (void)state;
    assert_true(jread_u64(o, "a", &n) && n == INT64_MAX);
    assert_true(jread_u64(o, "z", &n) && n == 0);
    n = 5;
    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        assert_false(jread_u64(o, none[i], &n));
        assert_int_equal(n, 5);
    }
    assert_true(jread_count(json_array_get(json_object_get(o, "list"), 0), &n) && n == 7);
    json_decref(o);
}

static void test_no_document(void **state)
{
    json_t *list = parsed("[\"a\"]");
    uint64_t n;

    (void)state;
    assert_null(jread_text(NULL, "a").p);
    assert_null(jread_text(list, "a").p);
    assert_false(jread_u64(NULL, "a", &n));
    assert_true(slice_eq(jread_slice(json_array_get(list, 0)), SLICE("a")));
    assert_null(jread_slice(json_array_get(list, 1)).p);
    json_decref(list);
}

static void test_too_many_values(void **state)
{
    static const char text[] = "{\"a\": [1, 2, {}], \"b,{[\\\",\": \"[[[[\"}";
    struct slice whole = slice_of(text, sizeof text - 1);
    json_t *o = jread_parse(whole, 0, 6);

    (void)state;
    assert_int_equal(json_array_size(json_object_get(o, "a")), 3);
    assert_true(slice_eqs(jread_text(o, "b,{[\","), "[[[["));
    json_decref(o);
    assert_null(jread_parse(whole, 0, 5));
    assert_null(jread_parse(SLICE(""), 0, 5));
    assert_null(jread_parse(SLICE_NONE, 0, 5));
    assert_null(jread_parse(SLICE("\"a\\"), JSON_DECODE_ANY, 5));
    o = jread_parse(SLICE("7"), JSON_DECODE_ANY, 0);
    assert_int_equal(json_integer_value(o), 7);
    json_decref(o);
    assert_true(jread_values_of(64 << 20) < (64 << 20) / 12);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_no_document),
        cmocka_unit_test(test_too_many_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
