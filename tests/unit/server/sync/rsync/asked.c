#include "server/sync/rsync/asked.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static const struct sums_head whole = {0};
static const struct sums_head two = {.count = 2, .block_bytes = 700, .strong_bytes = 2};

static void answers_come_in_order(void **state)
{
    struct asked_queue q = {0};

    (void)state;
    asked_add(&q, 5, 1, &whole);
    asked_add(&q, 7, 1, &whole);
    assert_false(asked_fits(&q, 7, &whole));
    assert_true(asked_fits(&q, 5, &whole));
    asked_first(&q)->index = -1;
    assert_true(asked_fits(&q, 7, &whole));
    asked_first(&q)->index = -1;
    assert_null(asked_first(&q));
    assert_true(asked_is_empty(&q));
}

static void some_are_struck_out_of_turn(void **state)
{
    struct asked_queue q = {0};

    (void)state;
    asked_add(&q, 5, 1, &whole);
    asked_add(&q, 7, 1, &whole);
    assert_true(asked_strike(&q, 7));
    assert_false(asked_strike(&q, 7));
    assert_false(asked_strike(&q, -1));
    assert_false(asked_strike(&q, 6));
    assert_true(asked_fits(&q, 5, &whole));
    assert_true(asked_strike(&q, 5));
    assert_true(asked_is_empty(&q));
}

/* Whoever writes its sums still needs it. */
static void what_is_being_written_is_not_answered(void **state)
{
    struct asked_queue q = {0};

    (void)state;
    asked_add(&q, 5, 1, &whole);
    asked_add(&q, 7, 1, &two);
    assert_false(asked_strike(&q, 7));
    assert_true(asked_strike(&q, 5));
    assert_false(asked_fits(&q, 7, &two));
    assert_false(asked_wrote_block(&q));
    assert_false(asked_strike(&q, 7));
    assert_true(asked_wrote_block(&q));
    assert_true(asked_fits(&q, 7, &two));
    assert_true(asked_strike(&q, 7));
    assert_true(asked_is_empty(&q));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_come_in_order),
        cmocka_unit_test(some_are_struck_out_of_turn),
        cmocka_unit_test(what_is_being_written_is_not_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
