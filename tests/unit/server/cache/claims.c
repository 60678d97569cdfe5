/* Which bytes are fetched next, by what is here and what is claimed. Figures are in blocks. */
#include "server/cache/claims.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define B      BLOCK_BYTES
#define TOTAL  (100 * B)
#define NEAR   (4 * B)
#define NOBODY CLAIMS_MAX

static struct claims two(uint64_t a_cur, uint64_t a_end, uint64_t b_cur, uint64_t b_end)
{
    return (struct claims){.of = {[1] = {true, a_cur * B, a_end * B},
                                  [3] = {true, b_cur * B, b_end * B},
                                  [4] = {false, 0, TOTAL}}};
}

static void gap(const struct claims *c, const struct extents *have, uint64_t first, uint64_t end)
{
    struct extent got;

    assert_true(claims_gap(c, have, TOTAL, &got));
    assert_int_equal(got.first, first * B);
    assert_int_equal(got.end, end * B);
}

static void a_gap_lies_between_what_is_here_and_what_is_claimed(void **state)
{
    struct claims none = {0};
    struct claims c = two(10, 20, 50, 60);
    struct claims all = two(0, 50, 50, 100);
    struct extents have = {0};
    struct extent got;

    (void)state;
    gap(&none, &have, 0, 100);
    gap(&c, &have, 0, 10);
    extents_add(&have, 0, 10 * B);
    gap(&none, &have, 10, 100);
    gap(&c, &have, 20, 50);
    extents_add(&have, 20 * B, 30 * B);
    gap(&c, &have, 30, 50);
    extents_add(&have, 40 * B, 45 * B);
    gap(&c, &have, 30, 40);
    assert_false(claims_gap(&all, &have, TOTAL, &got));
    extents_add(&have, 0, TOTAL);
    assert_false(claims_gap(&none, &have, TOTAL, &got));
    extents_fini(&have);
}

static void bytes_that_come_soon_are_covered(void **state)
{
    struct claims c = two(10, 20, 50, 60);
    struct extents have = {0};

    (void)state;
    extents_add(&have, 0, 10 * B);
    assert_true(claims_cover(&c, &have, 10 * B - 1, 0));
    assert_true(claims_cover(&c, &have, 10 * B, 0));
    assert_true(claims_cover(&c, &have, 14 * B, NEAR));
    assert_false(claims_cover(&c, &have, 14 * B + 1, NEAR));
    assert_false(claims_cover(&c, &have, 20 * B, NEAR));
    assert_false(claims_cover(&c, &have, 49 * B, NEAR));
    extents_fini(&have);
}

static void cut(const struct claims *c, const struct extents *have, struct reader_need n,
                struct extent lookup, unsigned holder)
{
    struct extent got;
    unsigned whose;

    assert_true(claims_cut(c, have, &n, TOTAL, NEAR, &got, &whose));
    assert_int_equal(got.first, lookup.first);
    assert_int_equal(got.end, lookup.end);
    assert_int_equal(whose, holder);
}

static void a_reader_gets_the_blocks_around_its_range(void **state)
{
    struct claims c = two(10, 20, 50, 60);
    struct extents have = {0};
    struct extent got;
    unsigned whose;

    (void)state;
    extents_add(&have, 0, 10 * B);
    cut(&c, &have, (struct reader_need){30 * B + 5, 31 * B + 1}, (struct extent){30 * B, 32 * B},
        NOBODY);
    cut(&c, &have, (struct reader_need){30 * B, UINT64_MAX}, (struct extent){30 * B, 50 * B},
        NOBODY); /* up to the next claim */
    cut(&c, &have, (struct reader_need){90 * B, TOTAL - 1}, (struct extent){90 * B, TOTAL}, NOBODY);
    cut(&c, &have, (struct reader_need){18 * B + 1, 30 * B}, (struct extent){18 * B, 30 * B},
        1); /* far down a claim: that ends here */
    extents_add(&have, 18 * B, 18 * B + 7);
    cut(&c, &have, (struct reader_need){18 * B + 9, 19 * B}, (struct extent){18 * B + 7, 19 * B},
        1); /* not what is here */
    extents_add(&have, 30 * B, 31 * B);
    cut(&c, &have, (struct reader_need){25 * B, 40 * B}, (struct extent){25 * B, 30 * B}, NOBODY);
    assert_false(
        claims_cut(&c, &have, &(struct reader_need){12 * B, 13 * B}, TOTAL, NEAR, &got, &whose));
    assert_false(
        claims_cut(&c, &have, &(struct reader_need){5, 13 * B}, TOTAL, NEAR, &got, &whose));
    extents_fini(&have);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gap_lies_between_what_is_here_and_what_is_claimed),
        cmocka_unit_test(bytes_that_come_soon_are_covered),
        cmocka_unit_test(a_reader_gets_the_blocks_around_its_range),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
