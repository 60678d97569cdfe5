#include "agent/peers/choose.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "agent/peers/bits.h"

enum { COUNT = 200 };

struct table {
    uint8_t state[COUNT];
    uint8_t mine[BITS_BYTES(COUNT)];
    uint8_t has[2][BITS_BYTES(COUNT)];
    struct giver giver[2];
    struct choose_from from;
    uint64_t dice;
};

/* All missing, nothing asked, two givers that have nothing, others fetch it too. */
static void lay(struct table *t)
{
    *t = (struct table){.dice = 7};
    t->giver[0] = (struct giver){t->has[0], 2};
    t->giver[1] = (struct giver){t->has[1], 2};
    t->from = (struct choose_from){.state = t->state,
                                   .count = COUNT,
                                   .mine = t->mine,
                                   .giver = t->giver,
                                   .ngivers = 2,
                                   .brings = true};
}

static void test_what_it_is_to_bring_comes_first(void **state)
{
    struct table t;
    size_t chunk, giver;

    (void)state;
    lay(&t);
    bits_set(t.mine, 17, true);
    bits_set(t.mine, 9, true);
    bits_set(t.has[0], 3, true);
    assert_int_equal(choose(&t.from, &t.dice, &chunk, &giver), CHOOSE_MIRROR);
    assert_int_equal(chunk, 9);
    t.from.brings = false; /* it has enough to bring */
    assert_int_equal(choose(&t.from, &t.dice, &chunk, &giver), CHOOSE_GIVER);
    t.from.brings = true;
    t.state[9] = PART_BUSY;
    assert_int_equal(choose(&t.from, &t.dice, &chunk, &giver), CHOOSE_MIRROR);
    assert_int_equal(chunk, 17);
    t.state[17] = PART_DONE;
    assert_int_equal(choose(&t.from, &t.dice, &chunk, &giver), CHOOSE_GIVER);
    assert_int_equal(chunk, 3);
    assert_int_equal(giver, 0);
}

static void test_givers_with_no_place_give_nothing(void **state)
{
    struct table t;
    size_t chunk, giver;

    (void)state;
    lay(&t);
    bits_set(t.has[0], 3, true);
    bits_set(t.has[1], 5, true);
    t.giver[0].places = 0;
    for (int i = 0; i < 50; i++) {
        assert_int_equal(choose(&t.from, &t.dice, &chunk, &giver), CHOOSE_GIVER);
        assert_int_equal(chunk, 5);
        assert_int_equal(giver, 1);
    }
    t.giver[1].have = NULL; /* not heard of yet */
    assert_int_equal(choose(&t.from, &t.dice, &chunk, &giver), CHOOSE_NONE);
}

/* Among the first missing ones that somebody has, each gets its turn, and none behind them. */
static void test_at_random_among_the_first(void **state)
{
    struct table t;
    bool seen[COUNT] = {false};
    unsigned of[2] = {0};
    size_t chunk, giver;

    (void)state;
    lay(&t);
    memset(t.has[0], 0xff, sizeof t.has[0]);
    memset(t.has[1], 0xff, sizeof t.has[1]);
    t.from.first = 10;
    for (size_t i = 0; i < 10; i++) {
        t.state[i] = PART_DONE;
    }
    for (int i = 0; i < 5000; i++) {
        assert_int_equal(choose(&t.from, &t.dice, &chunk, &giver), CHOOSE_GIVER);
        assert_true(chunk >= 10 && chunk < 10 + CHOOSE_AMONG);
        seen[chunk] = true;
        of[giver]++;
    }
    for (size_t i = 10; i < 10 + CHOOSE_AMONG; i++) {
        assert_true(seen[i]);
    }
    assert_true(of[0] > 1000 && of[1] > 1000);
}

static void test_alone_it_goes_straight_on(void **state)
{
    struct table t;
    size_t chunk, giver;

    (void)state;
    lay(&t);
    t.state[0] = PART_BUSY;
    assert_int_equal(choose(&t.from, &t.dice, &chunk, &giver), CHOOSE_NONE);
    t.from.alone = true;
    assert_int_equal(choose(&t.from, &t.dice, &chunk, &giver), CHOOSE_MIRROR);
    assert_int_equal(chunk, 1);
    memset(t.state, PART_DONE, sizeof t.state);
    assert_int_equal(choose(&t.from, &t.dice, &chunk, &giver), CHOOSE_NONE);
}

/* Others may have stalled too: not all on the same chunk. */
static void test_stalled_it_brings_one_unasked(void **state)
{
    struct table t;
    size_t chunk, giver, lowest = COUNT, highest = 0;

    (void)state;
    lay(&t);
    t.from.stalled = true;
    for (int i = 0; i < 500; i++) {
        assert_int_equal(choose(&t.from, &t.dice, &chunk, &giver), CHOOSE_MIRROR);
        lowest = chunk < lowest ? chunk : lowest;
        highest = chunk > highest ? chunk : highest;
    }
    assert_true(lowest < 8 && highest >= 32 && highest < CHOOSE_AMONG);
    bits_set(t.has[1], 150, true);
    assert_int_equal(choose(&t.from, &t.dice, &chunk, &giver), CHOOSE_GIVER);
}

/* Givers who promise and do not give: a chunk from the mirror goes before them, those that were
 * asked of this node before it. */
static void test_starved_it_waits_for_no_giver(void **state)
{
    struct table t;
    size_t chunk, giver;

    (void)state;
    lay(&t);
    memset(t.has[0], 0xff, sizeof t.has[0]);
    t.from.starved = true;
    for (int i = 0; i < 500; i++) {
        assert_int_equal(choose(&t.from, &t.dice, &chunk, &giver), CHOOSE_MIRROR);
        assert_true(chunk < CHOOSE_AMONG);
    }
    bits_set(t.mine, 17, true);
    assert_int_equal(choose(&t.from, &t.dice, &chunk, &giver), CHOOSE_MIRROR);
    assert_int_equal(chunk, 17);
    memset(t.state, PART_DONE, sizeof t.state);
    assert_int_equal(choose(&t.from, &t.dice, &chunk, &giver), CHOOSE_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_it_is_to_bring_comes_first),
        cmocka_unit_test(test_givers_with_no_place_give_nothing),
        cmocka_unit_test(test_at_random_among_the_first),
        cmocka_unit_test(test_alone_it_goes_straight_on),
        cmocka_unit_test(test_stalled_it_brings_one_unasked),
        cmocka_unit_test(test_starved_it_waits_for_no_giver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
