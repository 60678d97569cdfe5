#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/hash/digest.h"

enum { CHUNK = 8 << 20, MOST = 2 * CHUNK + CHUNK / 2 };

static char *noise;

static int make_noise(void **state)
{
    uint64_t x = 88172645463325252u;

    (void)state;
    noise = mem_new(MOST);
    for (size_t i = 0; i < MOST; i += sizeof x) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        memcpy(noise + i, &x, sizeof x);
    }
    return 0;
}

static int free_noise(void **state)
{
    (void)state;
    free(noise);
    return 0;
}

static void add_in_steps(struct hasher *h, size_t from, size_t to, size_t step)
{
    for (size_t at = from; at < to; at += step) {
        hasher_add(h, noise + at, step < to - at ? step : to - at);
    }
}

/* Takes it: all there is to say of the first n bytes. */
static void assert_says(struct hasher *h, size_t n)
{
    struct digest want, got;
    size_t count;
    const struct digest *chunk;

    digest_of(slice_of(noise, n), &want);
    assert_int_equal(hasher_count(h), n);
    hasher_so_far(h, &got);
    assert_true(digest_eq(&got, &want));
    (void)hasher_chunks(h, &count);
    assert_int_equal(count, n / CHUNK);
    hasher_final(h, &got);
    assert_true(digest_eq(&got, &want));
    chunk = hasher_chunks(h, &count);
    assert_int_equal(count, (n + CHUNK - 1) / CHUNK);
    for (size_t i = 0; i < count; i++) {
        size_t at = i * CHUNK;
        digest_of(slice_of(noise + at, n - at < CHUNK ? n - at : CHUNK), &want);
        assert_true(digest_eq(&chunk[i], &want));
    }
    hasher_free(&h);
    assert_null(h);
}

static void test_whole_and_chunks(void **state)
{
    static const size_t sizes[] = {0,         1,          1000,          CHUNK - 1, CHUNK,
                                   CHUNK + 1, CHUNK + 77, 2 * CHUNK - 1, 2 * CHUNK, MOST};
    static const size_t steps[] = {MOST, CHUNK, 1000003, 65520, 4096};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct hasher *h = hasher_new();
        add_in_steps(h, 0, sizes[i], steps[i % ARRAY_LEN(steps)]);
        assert_says(h, sizes[i]);
    }
}

static void test_a_copy_in_a_chunk_and_between_two(void **state)
{
    static const size_t cuts[] = {0, 100, CHUNK - 1, CHUNK, CHUNK + 100, 2 * CHUNK};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cuts); i++) {
        struct hasher *h = hasher_new(), *copy;
        add_in_steps(h, 0, cuts[i], 65520);
        copy = hasher_copy(h);
        add_in_steps(h, cuts[i], MOST, 1 << 20);
        assert_says(h, MOST);
        add_in_steps(copy, cuts[i], 2 * CHUNK + 5, 1 << 20);
        assert_says(copy, 2 * CHUNK + 5);
    }
}

static void test_the_whole_alone_has_no_chunks(void **state)
{
    struct hasher *h = hasher_new_whole();
    struct digest want, got;
    size_t count;

    (void)state;
    add_in_steps(h, 0, CHUNK + 10, 65520);
    hasher_final(h, &got);
    digest_of(slice_of(noise, CHUNK + 10), &want);
    assert_true(digest_eq(&got, &want));
    (void)hasher_chunks(h, &count);
    assert_int_equal(count, 0);
    hasher_free(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_and_chunks),
        cmocka_unit_test(test_a_copy_in_a_chunk_and_between_two),
        cmocka_unit_test(test_the_whole_alone_has_no_chunks),
    };
    return cmocka_run_group_tests(tests, make_noise, free_noise);
}
