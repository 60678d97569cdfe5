#include "server/sync/rsync/sums.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void blocks_by_size(void **state)
{
    static const struct {
        uint64_t size;
        uint32_t count, block, rest;
    } v[] = {{0, 0, 0, 0},
             {1, 1, 700, 1},
             {700, 1, 700, 0},
             {490000, 700, 700, 0},
             {500000, 711, 704, 160},
             {1000000000, 31630, 31616, 1000000000 % 31616},
             {100000000000, 762940, 131072, 100000000000 % 131072}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        struct sums_head h = sums_of(v[i].size, CHECKSUM_MD5, false);
        assert_int_equal(h.count, v[i].count);
        assert_int_equal(h.block_bytes, v[i].block);
        assert_int_equal(h.remainder, v[i].rest);
        assert_true(h.count == 0 || (h.strong_bytes >= 2 && h.strong_bytes <= 16));
    }
    assert_int_equal(sums_of(1000, CHECKSUM_MD5, true).strong_bytes, 16);
    assert_int_equal(sums_of(1000, CHECKSUM_XXH3, true).strong_bytes, 8);
    assert_true(sums_of(1ull << 40, CHECKSUM_MD5, false).strong_bytes >
                sums_of(1 << 20, CHECKSUM_MD5, false).strong_bytes);
}

static void rolling_counts_bytes_with_sign(void **state)
{
    (void)state;
    assert_int_equal(sums_rolling(SLICE_NONE), 0);
    assert_int_equal(sums_rolling(SLICE("\x01\x02")), 3 | 4 << 16);
    assert_int_equal(sums_rolling(SLICE("\xff")), 0xffffffff);
}

static void rolling_is_two_plain_sums_at_any_length(void **state)
{
    char p[300];

    (void)state;
    for (size_t i = 0; i < sizeof p; i++) {
        p[i] = (char)(i * i * 37 + 11);
    }
    for (size_t n = 0; n <= sizeof p; n++) {
        uint32_t a = 0, b = 0;
        for (size_t i = 0; i < n; i++) {
            a += (uint32_t)(int32_t)(signed char)p[i];
            b += a;
        }
        assert_int_equal(sums_rolling(slice_of(p, n)), (a & 0xffff) | b << 16);
    }
}

static void heads_that_cannot_be(void **state)
{
    static const int32_t v[][4] = {{-1, 700, 2, 0},   {1, 0, 2, 0},    {1, 700, 17, 0},
                                   {1, 700, -1, 0},   {1, 700, 2, -1}, {1, 700, 2, 701},
                                   {1, 1 << 18, 2, 0}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(v); i++) {
        struct buf b = BUF_INIT(64);
        struct get g;
        for (int k = 0; k < 4; k++) {
            put_int(&b, v[i][k]);
        }
        g = get_from(buf_slice(&b));
        get_sums_head(&g, 16);
        assert_int_equal(g.rc, E_PROTOCOL);
        buf_free(&b);
    }
}

/* Digests of "hello\n" as the installed program sends them: see tests/fuzz/corpus/rsync_token. */
static void digests_as_the_peers(void **state)
{
    static const uint8_t xxh128[16] = {0x9c, 0xe4, 0xc8, 0xf1, 0x35, 0xb4, 0x10, 0x5a,
                                       0x6d, 0xf5, 0x69, 0xe0, 0xc7, 0x86, 0xba, 0x6b};
    static const uint8_t md5[16] = {0xb1, 0x94, 0x6a, 0xc9, 0x24, 0x92, 0xd2, 0x34,
                                    0x7c, 0x62, 0x35, 0xb4, 0xd2, 0x61, 0x11, 0x84};
    uint8_t out[CHECKSUM_BYTES_MAX];
    struct checksum c;

    (void)state;
    checksum_init(&c, CHECKSUM_XXH128);
    checksum_add(&c, SLICE("hel"));
    checksum_add(&c, SLICE("lo\n"));
    checksum_end(&c, out);
    assert_memory_equal(out, xxh128, 16);
    checksum_fini(&c);
    checksum_init(&c, CHECKSUM_MD5);
    checksum_add(&c, SLICE("hello\n"));
    checksum_end(&c, out);
    assert_memory_equal(out, md5, 16);
    checksum_fini(&c);
    checksum_fini(&c);
}

static void agrees_on_names(void **state)
{
    enum checksum_kind k;

    (void)state;
    assert_true(checksum_agree(SLICE(CHECKSUM_OFFER), SLICE("md4 md5 xxh64"), &k));
    assert_int_equal(k, CHECKSUM_XXH64);
    assert_true(checksum_agree(SLICE("foo md5"), SLICE("xxh128 md5 none"), &k));
    assert_int_equal(k, CHECKSUM_MD5);
    assert_false(checksum_agree(SLICE(CHECKSUM_OFFER), SLICE("md4 none"), &k));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rolling_is_two_plain_sums_at_any_length),
        cmocka_unit_test(blocks_by_size),
        cmocka_unit_test(rolling_counts_bytes_with_sign),
        cmocka_unit_test(heads_that_cannot_be),
        cmocka_unit_test(digests_as_the_peers),
        cmocka_unit_test(agrees_on_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
