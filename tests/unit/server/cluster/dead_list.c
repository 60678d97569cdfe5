#include "server/cluster/dead_list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void keys_are_parsed_as_they_are_written(void **state)
{
    static const char *const expected[] = {"pack/4f/4f00000000000abc", "blob/4f/4f00000000000abc",
                                           "idx/4f00000000000abc", "dead/4f00000000000abc"};
    char key[CONTENT_KEY_ROOM];
    struct dead_object o, again;

    (void)state;
    for (unsigned kind = DEAD_PACK; kind <= DEAD_LIST; kind++) {
        o = (struct dead_object){.kind = (enum dead_kind)kind, .nonce = 0x4f00000000000abcu};
        dead_object_key(&o, key);
        assert_string_equal(key, expected[kind - 1]);
        assert_true(dead_object_parse(slice_str(key), &again));
        assert_int_equal(again.kind, kind);
        assert_int_equal(again.nonce, o.nonce);
    }
}

static void other_keys_are_not_ours(void **state)
{
    static const char *const keys[] = {"",
                                       "idx/",
                                       "4f00000000000abc",
                                       "idx/4f00000000000ab",
                                       "idx/4F00000000000ABC",
                                       "idx/4f00000000000abcd",
                                       "pack/4e/4f00000000000abc",
                                       "pack/4f00000000000abc",
                                       "idx/4f/4f00000000000abc",
                                       "log/0/0000000000000001",
                                       "blob/4f/4f00000000000abc/x"};
    struct dead_object o;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        assert_false(dead_object_parse(slice_str(keys[i]), &o));
    }
}

static void a_list_is_read_as_it_was_written(void **state)
{
    struct buf list = BUF_INIT(1 << 20);
    struct slice objects;
    struct dead_object o;

    (void)state;
    dead_list_begin(&list);
    for (uint64_t i = 1; i <= 100; i++) {
        dead_list_add(&list, &(struct dead_object){(enum dead_kind)(1 + i % 4), i, i * i});
    }
    dead_list_finish(&list);
    assert_int_equal(dead_list_open(buf_slice(&list), &objects, NULL), 0);
    for (uint64_t i = 1; i <= 100; i++) {
        assert_true(dead_list_next(&objects, &o));
        assert_int_equal(o.kind, 1 + i % 4);
        assert_int_equal(o.nonce, i);
        assert_int_equal(o.size_bytes, i * i);
    }
    assert_false(dead_list_next(&objects, &o));
    buf_free(&list);
}

static void a_damaged_list_deletes_nothing(void **state)
{
    struct buf list = BUF_INIT(1 << 20);
    struct slice objects;

    (void)state;
    dead_list_begin(&list);
    dead_list_add(&list, &(struct dead_object){DEAD_BLOB, 1, 2});
    dead_list_finish(&list);
    for (size_t n = 0; n < list.n; n++) {
        assert_int_equal(dead_list_open(slice_first(buf_slice(&list), n), &objects, NULL),
                         E_CORRUPT);
    }
    for (size_t i = 0; i < list.n * 8; i++) {
        list.p[i / 8] = (char)(list.p[i / 8] ^ 1 << i % 8);
        assert_int_equal(dead_list_open(buf_slice(&list), &objects, NULL), E_CORRUPT);
        list.p[i / 8] = (char)(list.p[i / 8] ^ 1 << i % 8);
    }
    /* A list of a later version, and one with a kind that there is not. */
    list.n -= DIGEST_BYTES;
    list.p[7] = '2';
    dead_list_finish(&list);
    assert_int_equal(dead_list_open(buf_slice(&list), &objects, NULL), E_UNSUPPORTED);
    dead_list_begin(&list);
    dead_list_add(&list, &(struct dead_object){(enum dead_kind)5, 1, 2});
    dead_list_finish(&list);
    assert_int_equal(dead_list_open(buf_slice(&list), &objects, NULL), E_CORRUPT);
    buf_free(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_parsed_as_they_are_written),
        cmocka_unit_test(other_keys_are_not_ours),
        cmocka_unit_test(a_list_is_read_as_it_was_written),
        cmocka_unit_test(a_damaged_list_deletes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
