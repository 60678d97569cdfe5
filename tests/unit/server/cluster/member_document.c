#include "server/cluster/member_document.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "server/cluster/format.h"

static void what_is_written_is_read(void **state)
{
    struct member_document d = {.member = {.address = "http://10.0.0.1:8080",
                                           .version = "0.1.0",
                                           .format = 7,
                                           .state = MEMBER_LEAVING,
                                           .weight = 3,
                                           .applied = UINT64_MAX >> 1,
                                           .stopped = true},
                                .boot = "0123456789abcdef",
                                .beat = 17},
                           got;
    struct buf bytes = BUF_INIT(MEMBER_DOCUMENT_BYTES);

    (void)state;
    for (d.pauses = 0; d.pauses < MEMBER_PAUSES_MAX; d.pauses++) {
        d.pause[d.pauses].origin = UINT64_MAX - d.pauses;
        d.pause[d.pauses].until_unix_s = 1789000000 + d.pauses;
    }
    member_document_write(&d, &bytes);
    assert_int_equal(bytes.rc, 0);
    assert_true(member_document_read(buf_slice(&bytes), &got));
    assert_string_equal(got.member.address, d.member.address);
    assert_string_equal(got.member.version, d.member.version);
    assert_string_equal(got.boot, d.boot);
    assert_int_equal(got.member.format, d.member.format);
    assert_int_equal(got.member.state, d.member.state);
    assert_int_equal(got.member.weight, d.member.weight);
    assert_int_equal(got.member.applied, d.member.applied);
    assert_true(got.member.stopped);
    assert_int_equal(got.beat, d.beat);
    assert_int_equal(got.pauses, MEMBER_PAUSES_MAX);
    for (size_t i = 0; i < got.pauses; i++) {
        assert_int_equal(got.pause[i].origin, d.pause[i].origin);
        assert_int_equal(got.pause[i].until_unix_s, d.pause[i].until_unix_s);
    }
    buf_free(&bytes);
}

static void what_cannot_be_read_is_a_default(void **state)
{
    static const char *const documents[] = {
        "",
        "[]",
        "{",
        "1",
        "{}",
        "{\"state\": \"asleep\", \"weight\": -5, \"boot\": 3}",
        "{\"weight\": 0, \"address\": [], \"pauses\": {\"origin\": 1}}",
        "{\"boot\": \"longer than a boot can be\", \"pauses\": [1, {\"origin\": \"x\"}]}"};
    struct member_document got;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(documents); i++) {
        assert_int_equal(member_document_read(slice_str(documents[i]), &got), i >= 4);
        assert_int_equal(got.member.state, MEMBER_READY);
        assert_int_equal(got.member.weight, 1);
        assert_int_equal(got.member.format, FORMAT_FIRST);
        assert_string_equal(got.member.address, "");
        assert_string_equal(got.boot, "");
        assert_int_equal(got.pauses, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(what_cannot_be_read_is_a_default),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
