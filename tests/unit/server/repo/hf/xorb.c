#include "server/repo/hf/xorb.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include <string.h>

#include "common/base/check.h"

enum { CHUNK = XORB_CHUNK_BYTES, STEP = CHUNK + XORB_HEAD_BYTES };

static uint8_t plain_at(uint64_t i)
{
    return (uint8_t)(i * 31 + (i >> 9));
}

/* As the specification says it, chunk by chunk. */
static uint8_t *framed_whole(uint64_t size, uint64_t *n)
{
    uint8_t *out = calloc(1, size + (size / CHUNK + 1) * XORB_HEAD_BYTES);

    *n = 0;
    for (uint64_t at = 0; at < size; at += CHUNK) {
        uint32_t length = (uint32_t)min_u64(CHUNK, size - at);
        uint8_t head[8] = {0, (uint8_t)length, (uint8_t)(length >> 8), (uint8_t)(length >> 16),
                           0, (uint8_t)length, (uint8_t)(length >> 8), (uint8_t)(length >> 16)};
        memcpy(out + *n, head, 8);
        *n += 8;
        for (uint32_t i = 0; i < length; i++) {
            out[(*n)++] = plain_at(at + i);
        }
    }
    return out;
}

static void check_span(const uint8_t *lookup, uint64_t size, uint64_t first, uint64_t end,
                       size_t step)
{
    while (first < end) {
        struct xorb_piece p;
        xorb_piece(size, first, (size_t)min_u64(step, end - first), &p);
        assert_true(p.n >= 1 && p.n <= min_u64(step, end - first));
        for (size_t i = 0; i < p.n; i++) {
            assert_int_equal(p.head != NULL ? p.head[i] : plain_at(p.plain + i), lookup[first + i]);
        }
        first += p.n;
    }
}

static void test_pieces(void **state)
{
    static const uint64_t sizes[] = {1, 7, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 77};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t n;
        uint8_t *lookup = framed_whole(sizes[i], &n);
        assert_int_equal(xorb_framed(sizes[i]), n);
        assert_int_equal(xorb_plain(n), sizes[i]);
        check_span(lookup, sizes[i], 0, n, SIZE_MAX);
        check_span(lookup, sizes[i], 0, n, 5);
        for (uint64_t at = STEP - 12; at + 20 < n && at < STEP + 12; at++) {
            check_span(lookup, sizes[i], at, at + 20, 64);
        }
        free(lookup);
    }
}

static void test_positions(void **state)
{
    (void)state;
    assert_int_equal(xorb_framed(0), 0);
    assert_int_equal(xorb_framed(1), 9);
    assert_int_equal(xorb_framed(CHUNK), STEP);
    assert_int_equal(xorb_framed(CHUNK + 1), STEP + 9);
    for (uint64_t f = 0; f <= 8; f++) {
        assert_int_equal(xorb_plain(f), 0);
        assert_int_equal(xorb_plain(STEP + f), CHUNK);
    }
    assert_int_equal(xorb_plain(9), 1);
    /* No file is too large for the arithmetic. */
    assert_int_equal(xorb_plain(xorb_framed(UINT64_C(1) << 60)), UINT64_C(1) << 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pieces),
                                       cmocka_unit_test(test_positions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
