#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/hash/digest.h"
#include "common/hash/gear.h"

enum { SIZE = 4 << 20 };

static char *noise(void)
{
    char *p = mem_new(SIZE);
    uint64_t x = 88172645463325252u;

    for (size_t i = 0; i < SIZE; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        p[i] = (char)(x >> 32);
    }
    return p;
}

/* Ends of pieces; `step` bytes are given at once. */
static size_t cut(const char *p, size_t n, size_t step, size_t *ends)
{
    struct gear g = {0};
    size_t count = 0;

    for (size_t at = 0; at < n;) {
        size_t give = step < n - at ? step : n - at;
        bool end;
        size_t took = gear_cut(&g, p + at, give, &end);
        assert_in_range(took, 1, give);
        at += took;
        if (end) {
            ends[count++] = at;
        }
    }
    return count;
}

static void test_cuts_do_not_depend_on_how_bytes_come(void **state)
{
    static size_t a[1000], b[1000];
    char *p = noise();
    size_t n = cut(p, SIZE, SIZE, a);

    (void)state;
    assert_in_range(n, SIZE / GEAR_MAX, SIZE / GEAR_MIN);
    for (size_t step = 1; step < 100000; step = step * 7 + 1) {
        assert_int_equal(cut(p, SIZE, step, b), n);
        assert_memory_equal(a, b, n * sizeof a[0]);
    }
    for (size_t i = 0, last = 0; i < n; last = a[i++]) {
        assert_in_range(a[i] - last, GEAR_MIN, GEAR_MAX);
    }
    free(p);
}

static void test_an_insertion_moves_few_cuts(void **state)
{
    static size_t a[1000], b[1000];
    char *p = noise(), *q = mem_new(SIZE + 100);
    size_t n = cut(p, SIZE, SIZE, a), m, same = 0;

    (void)state;
    memcpy(q, p, SIZE / 3);
    memset(q + SIZE / 3, 'x', 100);
    memcpy(q + SIZE / 3 + 100, p + SIZE / 3, SIZE - SIZE / 3);
    m = cut(q, SIZE + 100, SIZE, b);
    for (size_t i = 0, k = 0; i < n; i++) {
        size_t where = a[i] <= SIZE / 3 ? a[i] : a[i] + 100;
        while (k < m && b[k] < where) {
            k++;
        }
        same += k < m && b[k] == where;
    }
    assert_in_range(same, n - 3, n);
    free(p);
    free(q);
}

/* Other mirrords have lists with these cuts. */
static void test_the_cuts_are_frozen(void **state)
{
    static size_t a[1000];
    char *p = noise();
    size_t n = cut(p, SIZE, SIZE, a);
    struct digest d;
    char hex[DIGEST_HEX + 1], text[16 * 1000];
    size_t used = 0;

    (void)state;
    for (size_t i = 0; i < n; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%zu ", a[i]);
    }
    digest_of(slice_of(text, used), &d);
    digest_format(&d, hex);
    assert_string_equal(hex, "f5aba9f516ac6350c2a4025a5a31590980acc0662cf3217b17573d92d63bf6e0");
    free(p);
}

static void test_equal_bytes_are_cut_at_the_most(void **state)
{
    static size_t a[1000];
    char *p = mem_new(SIZE);
    size_t n = cut(p, SIZE, 1000, a);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(a[i] % GEAR_MAX == 0 || a[i] % GEAR_MIN == 0, 1);
    }
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts_do_not_depend_on_how_bytes_come),
        cmocka_unit_test(test_an_insertion_moves_few_cuts),
        cmocka_unit_test(test_the_cuts_are_frozen),
        cmocka_unit_test(test_equal_bytes_are_cut_at_the_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
