#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "server/peers/announcement.h"

#define ID "\"id\": \"00112233445566778899aAbBcCdDeEfF\""

static void what_is_said(void **state)
{
    static const uint8_t id[] = {0,    0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
                                 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff};
    struct node_announcement a;

    (void)state;
    assert_int_equal(
        announcement_read(SLICE("{" ID ", \"port\": 65535, \"have\": \"gEA=\", \"take\": 64, "
                                "\"name\": \"x\"}"),
                          &a, NULL),
        0);
    assert_memory_equal(a.id, id, sizeof id);
    assert_int_equal(a.port, 65535);
    assert_int_equal(a.take, 64);
    assert_false(a.leave);
    assert_int_equal(a.have_bytes, 2);
    assert_memory_equal(a.have, "\x80\x40", 2);
    announcement_free(&a);
    assert_int_equal(announcement_read(SLICE("{" ID ", \"port\": 0, \"have\": \"\"}"), &a, NULL),
                     0);
    assert_int_equal(a.port + a.take + a.have_bytes, 0); /* the swarm says what is too short */
    announcement_free(&a);
    assert_int_equal(
        announcement_read(SLICE("{" ID ", \"leave\": true, \"port\": \"?\"}"), &a, NULL), 0);
    assert_true(a.leave);
    assert_null(a.have);
    announcement_free(&a);
}

static void what_says_nothing(void **state)
{
    static const char *const wrong[] = {
        "",
        "\"" ID,
        "{}",
        "{" ID "}",
        "{" ID ", \"port\": 1}",
        "{" ID ", \"have\": \"gA==\"}",
        "{" ID ", \"port\": 1, \"have\": \"gA=\"}",
        "{" ID ", \"port\": 1, \"have\": \"gA\"}",
        "{" ID ", \"port\": 1, \"have\": \"gA==\", \"take\": 65}",
        "{" ID ", \"port\": 1, \"have\": \"gA==\", \"take\": 1e1}",
        "{" ID ", \"port\": 1, \"have\": \"gA==\", \"leave\": \"true\"}",
        "{" ID ", \"port\": 1, \"port\": 2, \"have\": \"gA==\"}",
        "{" ID ", \"port\": 1, \"have\": \"gA==\"} x",
        "{" ID ", \"port\": 18446744073709551617, \"have\": \"gA==\"}",
        "{\"id\": \"00112233445566778899aabbccddeef\", \"port\": 1, \"have\": \"gA==\"}",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct node_announcement a;
        struct err e = {0};
        assert_int_equal(announcement_read(slice_str(wrong[i]), &a, &e), E_INVALID);
        assert_true(e.text[0] != '\0');
        announcement_free(&a);
    }
    for (unsigned deep = 1; deep < 100000; deep *= 10) { /* the reader has a bound of its own */
        struct buf b = BUF_INIT(1 << 20);
        struct node_announcement a;
        for (unsigned i = 0; i < deep; i++) {
            buf_byte(&b, '[');
        }
        assert_int_equal(announcement_read(buf_slice(&b), &a, NULL), E_INVALID);
        buf_free(&b);
    }
}

static void what_is_answered(void **state)
{
    struct swarm_answer a = {
        .take = {3, 70000}, .takes = 2, .peers = 2, .members = 12, .again_s = 5};
    struct buf out = BUF_INIT(4096);

    (void)state;
    memset(a.key, 0xab, sizeof a.key);
    a.peer[0] = (struct swarm_peer){{[10] = 0xff, [11] = 0xff, 10, 0, 0, 7}, 40123};
    a.peer[1] = (struct swarm_peer){{0xfd, [15] = 9}, 1};
    swarm_answer_write(&a, &out);
    assert_string_equal(
        buf_cstr(&out),
        "{\"key\":\"abababababababababababababababababababababababababababababababab\","
        "\"take\":[3,70000],\"peers\":[{\"address\":\"10.0.0.7\",\"port\":40123},"
        "{\"address\":\"fd00::9\",\"port\":1}],\"swarm\":12,\"again_s\":5}\n");
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_said),
        cmocka_unit_test(what_says_nothing),
        cmocka_unit_test(what_is_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
