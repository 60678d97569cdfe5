#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <bzlib.h>
#include <cmocka.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include "common/base/buf.h"
#include "server/repo/unpack.h"

enum { BIG = 300000, ROOM = 400000 };
static char big[BIG], packed[ROOM];

static size_t pack(enum packing how, const void *p, size_t n)
{
    size_t at = 0;
    unsigned made = ROOM;
    z_stream z = {0};

    switch (how) {
    case PACKING_NONE:
        memcpy(packed, p, n);
        return n;
    case PACKING_GZIP:
        assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
        z.next_in = (Bytef *)(uintptr_t)p;
        z.avail_in = (uInt)n;
        z.next_out = (Bytef *)packed;
        z.avail_out = ROOM;
        assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
        at = ROOM - z.avail_out;
        deflateEnd(&z);
        return at;
    case PACKING_XZ:
        assert_int_equal(
            lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, NULL, p, n, (uint8_t *)packed, &at, ROOM),
            LZMA_OK);
        return at;
    case PACKING_ZSTD:
        return ZSTD_compress(packed, ROOM, p, n, 3);
    case PACKING_BZIP2:
        assert_int_equal(
            BZ2_bzBuffToBuffCompress(packed, &made, (char *)(uintptr_t)p, (unsigned)n, 9, 0, 0),
            BZ_OK);
        return made;
    }
    return 0;
}

static int add(void *arg, struct slice bytes, struct err *e)
{
    (void)e;
    buf_adds(arg, bytes);
    return 0;
}

/* In pieces of `step` bytes, `members` times one behind the other. */
static int unpack_all(enum packing how, size_t n, size_t step, int members, uint64_t max_bytes,
                      struct buf *out)
{
    struct unpack *u = unpack_open(how, add, out, max_bytes);
    struct err e = {0};
    int rc = 0;

    buf_clear(out);
    for (int k = 0; k < members; k++) {
        for (size_t at = 0; rc == 0 && at < n; at += step) {
            rc = unpack_feed(u, slice_of(packed + at, n - at < step ? n - at : step), &e);
        }
    }
    rc = rc == 0 ? unpack_finish(u, &e) : rc;
    unpack_close(&u);
    assert_int_equal(rc, e.code);
    return rc;
}

static void test_each_packing(void **state)
{
    static const enum packing all[] = {PACKING_NONE, PACKING_GZIP, PACKING_XZ, PACKING_ZSTD,
                                       PACKING_BZIP2};
    struct buf out = BUF_INIT(1 << 20);

    (void)state;
    for (size_t i = 0; i < BIG; i++) {
        big[i] = (char)(i * i >> 7);
    }
    for (size_t k = 0; k < ARRAY_LEN(all); k++) {
        size_t n = pack(all[k], big, BIG);
        for (size_t step = 1; step <= n; step = step * 50 + 3) {
            assert_int_equal(unpack_all(all[k], n, step, 2, 1 << 20, &out), 0);
            assert_int_equal(out.n, 2 * BIG);
            assert_memory_equal(out.p, big, BIG);
            assert_memory_equal(out.p + BIG, big, BIG);
        }
        assert_int_equal(unpack_all(all[k], n, n, 1, BIG, &out), 0);
        assert_int_equal(unpack_all(all[k], n, n, 1, BIG - 1, &out), E_TOOBIG);
        if (all[k] != PACKING_NONE) {
            assert_int_equal(unpack_all(all[k], n - 1, 999, 1, 1 << 20, &out), E_INVALID);
            assert_int_equal(unpack_all(all[k], 0, 1, 1, 1 << 20, &out), E_INVALID);
            packed[n / 2] ^= 0x55;
            (void)unpack_all(all[k], n, n, 1, 1 << 20, &out);
            memset(packed, 'x', 100);
            assert_int_equal(unpack_all(all[k], 100, 100, 1, 1 << 20, &out), E_INVALID);
        }
        n = pack(all[k], "", 0);
        assert_int_equal(unpack_all(all[k], n, 1, 1, 0, &out), 0);
    }
    buf_free(&out);
}

/* Zeroes pack to next to nothing: the bound ends it long before they are all there. */
static void test_bombs(void **state)
{
    static const enum packing all[] = {PACKING_GZIP, PACKING_XZ, PACKING_ZSTD, PACKING_BZIP2};
    struct buf out = BUF_INIT(1 << 20);
    size_t zeroes = 64 << 20;
    char *p = mem_new(zeroes);

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(all); k++) {
        size_t n = pack(all[k], p, zeroes);
        assert_int_equal(unpack_all(all[k], n, n, 1, 1 << 20, &out), E_TOOBIG);
        assert_true(out.n <= 1 << 20);
    }
    buf_free(&out);
    free(p);
}

static void test_names(void **state)
{
    struct slice bare;

    (void)state;
    assert_int_equal(packing_of(SLICE("a/x.json.zst"), &bare), PACKING_ZSTD);
    assert_true(slice_eqs(bare, "a/x.json"));
    assert_int_equal(packing_of(SLICE("Packages"), &bare), PACKING_NONE);
    assert_true(slice_eqs(bare, "Packages"));
    assert_int_equal(packing_of(SLICE("Packages.xz"), NULL), PACKING_XZ);
    assert_int_equal(packing_of(SLICE(""), NULL), PACKING_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_packing),
                                       cmocka_unit_test(test_bombs), cmocka_unit_test(test_names)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
