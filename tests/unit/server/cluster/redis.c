#include "server/cluster/redis.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define HEARD "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\n42\r\n"

static void a_command_is_an_array_of_texts(void **state)
{
    const struct slice words[] = {SLICE("PUBLISH"), SLICE("c"), SLICE("42")};
    struct buf out = BUF_INIT(100);

    (void)state;
    redis_command(&out, words, 3);
    assert_string_equal(buf_cstr(&out), "*3\r\n$7\r\nPUBLISH\r\n$1\r\nc\r\n$2\r\n42\r\n");
    buf_free(&out);
}

static void a_message_is_complete_with_its_last_byte(void **state)
{
    struct redis_reply r;

    (void)state;
    for (size_t n = 0; n <= sizeof HEARD - 1; n++) {
        struct slice in = slice_first(SLICE(HEARD), n);
        assert_int_equal(redis_reply_read(&in, &r), n == sizeof HEARD - 1);
        assert_int_equal(in.n, n == sizeof HEARD - 1 ? 0 : n);
    }
    assert_int_equal(r.items, 3);
    assert_true(slice_eqs(r.item[0], "message") && slice_eqs(r.item[2], "42"));
}

static void replies_follow_each_other(void **state)
{
    struct slice in = SLICE("+PONG\r\n:3\r\n-ERR no\r\n$-1\r\n$0\r\n\r\n*0\r\n" HEARD "+");
    const char types[] = "+:-$$**";
    struct redis_reply r;

    (void)state;
    for (size_t i = 0; i < sizeof types - 1; i++) {
        assert_int_equal(redis_reply_read(&in, &r), 1);
        assert_int_equal(r.type, types[i]);
    }
    assert_int_equal(redis_reply_read(&in, &r), 0);
    assert_true(slice_eqs(in, "+"));
}

static void what_is_no_reply(void **state)
{
    static const char *const bad[] = {
        "\n",          "hello\r\n", "+OK\n",         "\r\n",    "$x\r\n",
        "$2\r\nabc\r", "*5\r\n",    "*1\r\n*1\r\n+", "*-2\r\n", "$99999999999999999999\r\n"};
    struct redis_reply r;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct slice in = slice_str(bad[i]);
        assert_int_equal(redis_reply_read(&in, &r), E_INVALID);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_command_is_an_array_of_texts),
        cmocka_unit_test(a_message_is_complete_with_its_last_byte),
        cmocka_unit_test(replies_follow_each_other),
        cmocka_unit_test(what_is_no_reply),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
