#include "server/sync/rsync/varint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void numbers_come_back(void **state)
{
    static const int64_t v[] = {
        0,         1,          0x7f,       0x80,      0x3fff,       0x4000,    0x1fffff,  0x200000,
        0xfffffff, 0x10000000, INT32_MAX,  -1,        INT32_MIN,    1LL << 33, 1LL << 40, 1LL << 56,
        INT64_MAX, INT64_MIN,  0x7fffffff, 0x1234567, 0x0102030405, 255};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        for (unsigned least = 3; least <= 4; least++) {
            struct buf b = BUF_INIT(64);
            struct get g;
            put_varlong(&b, v[i], least);
            put_varint(&b, (int32_t)v[i]);
            g = get_from(buf_slice(&b));
            assert_int_equal(get_varlong(&g, least), v[i]);
            assert_int_equal(get_varint(&g), (int32_t)v[i]);
            assert_int_equal(g.rc, 0);
            assert_int_equal(g.n, 0);
            for (size_t n = 0; n < b.n; n++) { /* a byte less, and it waits for more */
                g = get_from(slice_first(buf_slice(&b), n));
                get_varlong(&g, least);
                get_varint(&g);
                assert_int_equal(g.rc, E_AGAIN);
            }
            buf_free(&b);
        }
    }
}

/* As the installed program writes them: a size of 0x2e, two of 1970 and 2242, 0x1fe. */
static void numbers_look_as_the_peers(void **state)
{
    static const uint8_t size[] = {0, 0x2e, 0};
    static const uint8_t soon[] = {0x5f, 0x02, 0x10, 0x5e};
    static const uint8_t far[] = {0x82, 0, 0, 0, 0};
    static const uint8_t past[] = {0xf8, 0x00, 0xfa, 0x67, 0xda, 0xff, 0xff, 0xff, 0xff};
    static const uint8_t nsec[] = {0xe7, 0x15, 0xcd, 0x5b};
    struct get g = get_from(slice_of(size, sizeof size));

    (void)state;
    assert_int_equal(get_varlong(&g, 3), 0x2e);
    g = get_from(slice_of(soon, sizeof soon));
    assert_int_equal(get_varlong(&g, 4), 1600000002);
    g = get_from(slice_of(far, sizeof far));
    assert_int_equal(get_varlong(&g, 4), 1LL << 33);
    g = get_from(slice_of(past, sizeof past));
    assert_int_equal(get_varlong(&g, 4), -86400LL * 365 * 20);
    g = get_from(slice_of(nsec, sizeof nsec));
    assert_int_equal(get_varint(&g), 123456789);
}

static void lengths_that_cannot_be(void **state)
{
    static const uint8_t bytes[] = {0xff, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    struct get g = get_from(slice_of(bytes, sizeof bytes));

    (void)state;
    get_varint(&g);
    assert_int_equal(g.rc, E_PROTOCOL);
    g = get_from(slice_of(bytes, sizeof bytes));
    get_varlong(&g, 4);
    assert_int_equal(g.rc, E_PROTOCOL);
}

static void indices_come_back(void **state)
{
    static const int32_t v[] = {0,         1, 2,  255, 256,  600,    5, INDEX_DONE, 6, 40000, 39999,
                                INT32_MAX, 0, -3, -2,  -400, -70000, 1, INDEX_DONE};
    struct buf b = BUF_INIT(256);
    struct index_coding out = INDEX_CODING_INIT;
    struct index_coding in = INDEX_CODING_INIT;
    struct get g;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        put_index(&b, &out, v[i]);
    }
    g = get_from(buf_slice(&b));
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        assert_int_equal(get_index(&g, &in), v[i]);
    }
    assert_int_equal(g.rc, 0);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_come_back),
        cmocka_unit_test(numbers_look_as_the_peers),
        cmocka_unit_test(lengths_that_cannot_be),
        cmocka_unit_test(indices_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
