#include "agent/peers/announcement.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "agent/peers/bits.h"

#define KEY "\"key\": \"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\""

static void test_what_is_said(void **state)
{
    static const uint8_t id[SWARM_ID_BYTES] = {0x8f, 0x14};
    uint8_t have[BITS_BYTES(10)] = {0};
    struct buf text = BUF_INIT(ANNOUNCEMENT_MAX);
    struct announcement a = {.id = id, .port = 40123, .have = have, .count = 10, .take = 4};

    (void)state;
    bits_set(have, 0, true);
    bits_set(have, 9, true);
    announcement_write(&a, &text);
    assert_string_equal(buf_cstr(&text),
                        "{\"id\":\"8f140000000000000000000000000000\",\"port\":40123,"
                        "\"have\":\"gEA=\",\"take\":4}");
    buf_clear(&text);
    announcement_leave(id, &text);
    assert_string_equal(buf_cstr(&text),
                        "{\"id\":\"8f140000000000000000000000000000\",\"leave\":true}");
    buf_free(&text);
}

static void test_the_largest_bitmap_has_room(void **state)
{
    uint8_t *have = mem_array(BITS_BYTES((size_t)ANNOUNCED_CHUNKS_MAX), 1);
    static const uint8_t id[SWARM_ID_BYTES];
    struct buf text = BUF_INIT(ANNOUNCEMENT_MAX);
    struct announcement a = {
        .id = id, .port = 65535, .have = have, .count = ANNOUNCED_CHUNKS_MAX, .take = 64};

    (void)state;
    announcement_write(&a, &text);
    assert_int_equal(text.rc, 0);
    buf_free(&text);
    free(have);
}

static void test_what_is_reported(void **state)
{
    struct reported t;

    (void)state;
    assert_int_equal(
        reported_read(
            SLICE("{" KEY
                  ", \"take\": [17, 18], \"peers\": [{\"address\": \"10.0.0.7\", \"port\": 40123},"
                  "{\"address\": \"fe80::1\", \"port\": 1}], \"swarm\": 12, \"again_s\": 5}"),
            20, &t, NULL),
        0);
    assert_int_equal(t.key[1], 0x11);
    assert_int_equal(t.ntake, 2);
    assert_int_equal(t.take[1], 18);
    assert_int_equal(t.npeers, 2);
    assert_string_equal(t.peer[0], "10.0.0.7:40123");
    assert_string_equal(t.peer[1], "[fe80::1]:1");
    assert_int_equal(t.members, 12);
    assert_int_equal(t.again_ms, 5000);
}

/* Nonsense in it is passed over; without a key it is nothing. */
static void test_what_is_not_believed(void **state)
{
    static const char *const addresses[] = {"",           "mirror",         "10.0.0.7:5",
                                            "10.0.0.256", "10.0.0.7 ",      "fe80::1%lo",
                                            "127.1",      "10.0.0.7\\u0000"};
    char text[512];
    struct reported t;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(addresses); i++) {
        snprintf(text, sizeof text, "{" KEY ", \"peers\": [{\"address\": \"%s\", \"port\": 5}]}",
                 addresses[i]);
        assert_int_equal(reported_read(slice_str(text), 20, &t, NULL), 0);
        assert_int_equal(t.npeers, 0);
    }
    assert_int_equal(
        reported_read(SLICE("{" KEY
                            ", \"take\": [20, -1, \"3\", 19, 1e3], \"again_s\": 0, \"peers\": ["
                            "{\"address\": \"10.0.0.7\", \"port\": 0}, "
                            "{\"address\": \"10.0.0.7\", \"port\": 65536}, 5,"
                            "{\"address\": \"10.0.0.7\"}]}"),
                      20, &t, NULL),
        0);
    assert_int_equal(t.ntake, 1);
    assert_int_equal(t.take[0], 19);
    assert_int_equal(t.npeers, 0);
    assert_int_equal(t.again_ms, 1000);
    assert_int_equal(t.members, 1);
    assert_int_equal(
        reported_read(SLICE("{" KEY ", \"again_s\": 18446744073709551615}"), 20, &t, NULL),
        E_PROTOCOL);
    assert_int_equal(
        reported_read(SLICE("{" KEY ", \"again_s\": 9223372036854775807}"), 20, &t, NULL), 0);
    assert_int_equal(t.again_ms, 300000);
    assert_int_equal(reported_read(SLICE("{\"key\": \"00\"}"), 20, &t, NULL), E_PROTOCOL);
    assert_int_equal(reported_read(SLICE("[]"), 20, &t, NULL), E_PROTOCOL);
    assert_int_equal(reported_read(SLICE_NONE, 20, &t, NULL), E_PROTOCOL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_said),
        cmocka_unit_test(test_the_largest_bitmap_has_room),
        cmocka_unit_test(test_what_is_reported),
        cmocka_unit_test(test_what_is_not_believed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
