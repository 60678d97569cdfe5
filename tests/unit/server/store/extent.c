#include "server/store/extent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

enum { SPACE = 200 };

static void assert_like(const struct extents *x, const bool *there)
{
    uint64_t count = 0;

    for (uint64_t at = 0; at < SPACE; at++) {
        uint64_t until = at;
        uint64_t next = at;
        while (until < SPACE && there[until]) {
            until++;
        }
        while (next < SPACE && !there[next]) {
            next++;
        }
        count += there[at];
        assert_int_equal(extents_until(x, at), until);
        assert_int_equal(extents_next(x, at), next == SPACE ? UINT64_MAX : next);
    }
    assert_int_equal(extents_bytes(x), count);
    for (size_t i = 1; i < x->count; i++) { /* sorted, and they do not touch */
        assert_true(x->run[i - 1].end < x->run[i].first);
    }
}

static void behaves_like_a_set_of_bytes(void **state)
{
    unsigned seed = 1;

    (void)state;
    for (int round = 0; round < 50; round++) {
        struct extents x = {0};
        struct extents y = {0};
        bool there[SPACE] = {false};
        struct buf b = BUF_INIT(1 << 16);
        struct slice in;
        for (int i = 0; i < 30; i++) {
            uint64_t first;
            uint64_t end;
            seed = seed * 1103515245u + 12345u;
            first = (seed >> 8) % SPACE;
            end = min_u64(SPACE, first + (seed >> 20) % 20);
            extents_add(&x, first, end);
            for (uint64_t at = first; at < end; at++) {
                there[at] = true;
            }
            assert_like(&x, there);
        }
        extents_encode(&x, &b);
        in = buf_slice(&b);
        assert_true(extents_decode(&y, &in, SPACE));
        assert_int_equal(in.n, 0);
        assert_like(&y, there);
        extents_fini(&x);
        extents_fini(&y);
        buf_free(&b);
    }
}

static void refuses_broken_lists(void **state)
{
    struct extents good = {0};
    struct extents x = {0};
    struct buf b = BUF_INIT(1 << 16);

    (void)state;
    extents_add(&good, 10, 20);
    extents_add(&good, 30, 40);
    extents_encode(&good, &b);
    for (size_t n = 0; n < b.n; n++) {
        struct slice in = slice_first(buf_slice(&b), n);
        assert_false(extents_decode(&x, &in, 100));
    }
    for (uint64_t total = 0; total < 40; total++) {
        struct slice in = buf_slice(&b);
        assert_false(extents_decode(&x, &in, total));
    }
    b.p[8 + 7] = 50; /* the first run now begins behind its end */
    assert_false(extents_decode(&x, &(struct slice){b.p, b.n}, 100));
    memset(b.p, 0xff, 8); /* a count that no row can hold */
    assert_false(extents_decode(&x, &(struct slice){b.p, b.n}, 100));
    extents_fini(&good);
    extents_fini(&x);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(behaves_like_a_set_of_bytes),
        cmocka_unit_test(refuses_broken_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
