#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/check.h"
#include "common/hash/digest.h"
#include "common/hash/sha256.h"

enum { MOST = 70000 };

static const enum sha256_way ways[] = {SHA256_BY_OPENSSL, SHA256_BY_CPU};

static bool can(enum sha256_way way)
{
    return way == SHA256_BY_OPENSSL || sha256_block_here();
}

static const uint8_t *noise(void)
{
    static uint8_t p[MOST];
    uint32_t x = 2463534242u;

    for (size_t i = 0; i < MOST; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        p[i] = (uint8_t)(x >> 8);
    }
    return p;
}

static void assert_hex(const uint8_t *d, const char *hex)
{
    char text[DIGEST_HEX + 1];
    struct digest as;

    memcpy(as.b, d, sizeof as.b);
    digest_format(&as, text);
    assert_string_equal(text, hex);
}

/* FIPS 180-4's own examples, and a million letters. */
static void test_known_digests(void **state)
{
    static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    uint8_t d[SHA256_BYTES], many[1000];
    struct sha256 s;

    (void)state;
    memset(many, 'a', sizeof many);
    for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
        if (!can(ways[w])) {
            continue;
        }
        sha256_init(&s, ways[w]);
        sha256_so_far(&s, d);
        assert_hex(d, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        sha256_add(&s, "abc", 3);
        sha256_so_far(&s, d);
        assert_hex(d, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        sha256_fini(&s);
        sha256_init(&s, ways[w]);
        sha256_add(&s, two_blocks, strlen(two_blocks));
        sha256_so_far(&s, d);
        assert_hex(d, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
        sha256_fini(&s);
        sha256_init(&s, ways[w]);
        for (int i = 0; i < 1000; i++) {
            sha256_add(&s, many, sizeof many);
        }
        sha256_so_far(&s, d);
        assert_hex(d, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
        sha256_fini(&s);
    }
}

/* Where padding begins a block of its own, and wherever the bytes were cut. */
static void test_every_length_and_cut(void **state)
{
    const uint8_t *p = noise();
    uint8_t want[SHA256_BYTES], got[SHA256_BYTES];
    struct sha256 s;

    (void)state;
    for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
        for (size_t n = 0; can(ways[w]) && n <= 260; n++) {
            sha256_of(p + n % 5, n, want);
            for (size_t cut = 0; cut <= n; cut += 1 + n / 16) {
                sha256_init(&s, ways[w]);
                sha256_add(&s, p + n % 5, cut);
                sha256_add(&s, p + n % 5 + cut, n - cut);
                assert_int_equal(s.count, n);
                sha256_so_far(&s, got);
                assert_memory_equal(got, want, sizeof got);
                sha256_fini(&s);
            }
        }
    }
}

/* One part after the other, of any length, bytes in pieces of `step`; the whole is not touched by
 * it. */
static void check_parts(enum sha256_way way, size_t begin, size_t bytes, size_t step)
{
    const uint8_t *p = noise();
    uint8_t want[SHA256_BYTES], got[SHA256_BYTES];
    struct sha256 s;

    sha256_init(&s, way);
    sha256_add(&s, p, begin);
    for (size_t at = begin; at < begin + 2 * bytes;) {
        size_t end = at < begin + bytes ? begin + bytes : begin + 2 * bytes;
        size_t give = step < end - at ? step : end - at;
        if (at == begin || at == begin + bytes) {
            sha256_part_begin(&s);
        }
        sha256_add(&s, p + at, give);
        at += give;
        if (at == end) {
            sha256_part_end(&s, got);
            sha256_of(p + end - bytes, bytes, want);
            assert_memory_equal(got, want, sizeof got);
        }
        sha256_so_far(&s, got);
        sha256_of(p, at, want);
        assert_memory_equal(got, want, sizeof got);
    }
    sha256_fini(&s);
}

static void test_parts(void **state)
{
    (void)state;
    for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
        if (!can(ways[w])) {
            continue;
        }
        for (size_t step = 1; step < 100000; step = step * 5 + 2) {
            check_parts(ways[w], 0, 64, step);
            check_parts(ways[w], 64, 128, step);
            check_parts(ways[w], 640, 6400, step);
            check_parts(ways[w], 4096, 32768, step < 7 ? 997 : step);
        }
    }
}

/* A part that is still open when another begins is forgotten. */
static void test_a_part_begun_anew(void **state)
{
    const uint8_t *p = noise();
    uint8_t want[SHA256_BYTES], got[SHA256_BYTES];
    struct sha256 s;

    (void)state;
    for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
        if (!can(ways[w])) {
            continue;
        }
        sha256_init(&s, ways[w]);
        sha256_part_begin(&s);
        sha256_add(&s, p, 192);
        sha256_part_begin(&s);
        sha256_add(&s, p + 192, 101);
        sha256_part_end(&s, got);
        sha256_of(p + 192, 101, want);
        assert_memory_equal(got, want, sizeof got);
        sha256_fini(&s);
    }
}

static void test_copies_go_on_each_for_itself(void **state)
{
    const uint8_t *p = noise();
    uint8_t want[SHA256_BYTES], got[SHA256_BYTES];
    struct sha256 a, b;

    (void)state;
    for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
        if (!can(ways[w])) {
            continue;
        }
        sha256_init(&a, ways[w]);
        sha256_add(&a, p, 256);
        sha256_part_begin(&a);
        sha256_add(&a, p + 256, 33);
        sha256_copy(&a, &b);
        sha256_add(&a, p + 289, 1000);
        sha256_add(&b, p + 5000, 77);
        sha256_part_end(&a, got);
        sha256_of(p + 256, 1033, want);
        assert_memory_equal(got, want, sizeof got);
        sha256_so_far(&a, got);
        sha256_of(p, 1289, want);
        assert_memory_equal(got, want, sizeof got);
        sha256_fini(&a);
        sha256_add(&b, p + 5077, 1);
        sha256_so_far(&b, got);
        sha256_init(&a, SHA256_BY_OPENSSL);
        sha256_add(&a, p, 289);
        sha256_add(&a, p + 5000, 78);
        sha256_so_far(&a, want);
        assert_memory_equal(got, want, sizeof got);
        sha256_fini(&a);
        sha256_fini(&b);
    }
}

static void test_the_cpus_way_is_taken_where_there_is_one(void **state)
{
    (void)state;
    assert_int_equal(sha256_best() == SHA256_BY_CPU, sha256_block_here());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_digests),
        cmocka_unit_test(test_every_length_and_cut),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_a_part_begun_anew),
        cmocka_unit_test(test_copies_go_on_each_for_itself),
        cmocka_unit_test(test_the_cpus_way_is_taken_where_there_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
