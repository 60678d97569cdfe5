#include "server/http/hpack.h"

#include <nghttp2/nghttp2.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

/* What nghttp2 reads of a head that we wrote: the same fields in the same order, or the test
 * fails. */
static void reads(nghttp2_hd_inflater *in, const char *p, size_t n, const struct slice *want,
                  size_t fields)
{
    size_t seen = 0;

    for (;;) {
        nghttp2_nv f;
        int flags = 0;
        ssize_t used = nghttp2_hd_inflate_hd2(in, &f, &flags, (const uint8_t *)p, n, 1);
        assert_true(used >= 0);
        p += used;
        n -= (size_t)used;
        if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0) {
            assert_true(seen < fields);
            assert_true(slice_eq(slice_of(f.name, f.namelen), want[2 * seen]));
            assert_true(slice_eq(slice_of(f.value, f.valuelen), want[2 * seen + 1]));
            seen++;
        }
        if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0) {
            break;
        }
    }
    nghttp2_hd_inflate_end_headers(in);
    assert_int_equal(seen, fields);
}

static size_t head(struct hpack *h, char *to, const struct slice *f, size_t fields)
{
    char *end = hpack_status(hpack_begin(h, to), (int)strtol(f[1].p, NULL, 10));

    for (size_t i = 1; i < fields; i++) {
        end = hpack_field(h, end, f[2 * i], f[2 * i + 1],
                          slice_eq(f[2 * i], SLICE("x-request-id")) ||
                              slice_eq(f[2 * i], SLICE("location")));
    }
    return (size_t)(end - to);
}

static void repeats_are_a_byte_each(void **state)
{
    struct slice f[] = {SLICE(":status"),       SLICE("200"),
                        SLICE("date"),          SLICE("Mon, 23 Nov 2026 08:00:00 GMT"),
                        SLICE("etag"),          SLICE("\"sha256-0123\""),
                        SLICE("x-repo-commit"), SLICE("0123456789abcdef"),
                        SLICE("empty"),         SLICE("")};
    nghttp2_hd_inflater *in;
    struct hpack h;
    char to[512];
    size_t n;

    (void)state;
    assert_int_equal(nghttp2_hd_inflate_new(&in), 0);
    hpack_init(&h);
    for (int i = 0; i < 3; i++) {
        n = head(&h, to, f, ARRAY_LEN(f) / 2);
        reads(in, to, n, f, ARRAY_LEN(f) / 2);
    }
    assert_int_equal(n, ARRAY_LEN(f) / 2);
    nghttp2_hd_inflate_del(in);
    hpack_fini(&h);
}

/* A value that comes once must not be in the table, its name from the second time on may be. */
static void what_comes_once_is_not_kept(void **state)
{
    struct slice f[] = {SLICE(":status"),      SLICE("302"),
                        SLICE("location"),     SLICE("http://a.example/?signed=1"),
                        SLICE("x-request-id"), SLICE("0123456789abcdef")};
    nghttp2_hd_inflater *in;
    struct hpack h;
    char to[512];
    size_t first, n;

    (void)state;
    assert_int_equal(nghttp2_hd_inflate_new(&in), 0);
    hpack_init(&h);
    first = head(&h, to, f, 3);
    reads(in, to, first, f, 3);
    for (int i = 0; i < 3; i++) {
        n = head(&h, to, f, 3);
        reads(in, to, n, f, 3);
    }
    assert_int_equal(h.last, 1);
    assert_int_equal(first - n, sizeof "x-request-id" - 1);
    nghttp2_hd_inflate_del(in);
    hpack_fini(&h);
}

/* Thousands of heads of names and values of all lengths, while the peer changes its mind on the
 * table's size. */
static void any_head_is_read_back(void **state)
{
    static char letters[3000];
    static const size_t lengths[] = {1, 2, 7, 8, 9, 16, 29, 71, 126, 127, 128, 300, 2999};
    nghttp2_hd_inflater *in;
    struct hpack h;
    char *to = mem_new(64 * 1024);
    uint32_t seed = 1;

    (void)state;
    for (size_t i = 0; i < sizeof letters; i++) {
        letters[i] = (char)('a' + i * i % 23);
    }
    assert_int_equal(nghttp2_hd_inflate_new(&in), 0);
    hpack_init(&h);
    for (int round = 0; round < 3000; round++) {
        struct slice f[2 * 12] = {SLICE(":status"), SLICE("418")};
        for (size_t i = 1; i < 12; i++) {
            size_t longest = seed % 40 == 0 ? ARRAY_LEN(lengths) : 10;
            seed = seed * 1103515245 + 12345;
            f[2 * i] = slice_of(letters + (seed >> 8) % 5, 1 + (seed >> 16) % 30);
            f[2 * i + 1] = slice_of(letters + (seed >> 20) % 3, lengths[(seed >> 4) % longest] - 2 +
                                                                    ((seed >> 4) % longest < 2));
        }
        if (round % 50 == 49) {
            static const uint32_t bounds[] = {4096, 100, 0, 1000, 1u << 30};
            uint32_t one = bounds[seed / 7 % 5], other = bounds[seed / 64 % 5];
            hpack_limit(&h, one);
            hpack_limit(&h, other);
            assert_int_equal(nghttp2_hd_inflate_change_table_size(in, one), 0);
            assert_int_equal(nghttp2_hd_inflate_change_table_size(in, other), 0);
        }
        reads(in, to, head(&h, to, f, 12), f, 12);
        assert_true(h.used_bytes <= h.max_bytes && h.count <= HPACK_RING);
    }
    nghttp2_hd_inflate_del(in);
    hpack_fini(&h);
    free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeats_are_a_byte_each),
        cmocka_unit_test(what_comes_once_is_not_kept),
        cmocka_unit_test(any_head_is_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
