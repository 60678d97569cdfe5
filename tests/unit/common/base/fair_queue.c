#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/fair_queue.h"

struct work {
    struct fair_item item;
    uint64_t client;
    unsigned number;
};

static void push(struct fair_queue *q, struct work *w, uint64_t client, unsigned number,
                 uint64_t cost)
{
    *w = (struct work){.client = client, .number = number};
    fair_queue_push(q, &w->item, client, cost);
}

static struct work *pop(struct fair_queue *q)
{
    struct fair_item *it = fair_queue_pop(q);
    return it != NULL ? CONTAINER_OF(it, struct work, item) : NULL;
}

static void test_clients_take_turns(void **state)
{
    struct fair_queue q;
    struct work many[100], one, other;

    (void)state;
    fair_queue_init(&q, 1, 0);
    for (unsigned i = 0; i < 100; i++) {
        push(&q, &many[i], 7, i, 1);
    }
    push(&q, &one, 8, 0, 1);
    push(&q, &other, 9, 0, 1);
    assert_int_equal(pop(&q)->client, 7);
    assert_int_equal(pop(&q)->client, 8);
    assert_int_equal(pop(&q)->client, 9);
    for (unsigned i = 1; i < 100; i++) { /* its own order stays */
        assert_int_equal(pop(&q)->number, i);
    }
    assert_null(pop(&q));
    fair_queue_fini(&q);
}

/* Shares are of cost, not of items: within one item's cost, whatever the sizes are. */
static void test_shares_of_cost(void **state)
{
    enum { EACH = 400 };
    static struct work small[EACH * 16], large[EACH];
    struct fair_queue q;
    uint64_t got[2] = {0};

    (void)state;
    fair_queue_init(&q, 4, 0);
    for (unsigned i = 0; i < EACH; i++) {
        push(&q, &large[i], 1, i, 16);
    }
    for (unsigned i = 0; i < EACH * 16; i++) {
        push(&q, &small[i], 2, i, 1);
    }
    for (unsigned i = 0; i < EACH * 8; i++) {
        struct work *w = pop(&q);
        got[w->client - 1] += w->client == 1 ? 16 : 1;
        assert_true(got[0] + 16 >= got[1] && got[1] + 32 >= got[0]);
    }
    while (pop(&q) != NULL) {
    }
    fair_queue_fini(&q);
}

static void test_credit_is_for_those_who_wait(void **state)
{
    struct fair_queue q;
    struct work a[8], b[8];

    (void)state;
    fair_queue_init(&q, 10, 0);
    push(&q, &a[0], 1, 0, 1); /* nine are left of its turn, and go with it */
    assert_ptr_equal(pop(&q), &a[0]);
    for (unsigned i = 0; i < 4; i++) {
        push(&q, &a[i], 1, i, 10);
        push(&q, &b[i], 2, i, 10);
    }
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(pop(&q)->client, 1 + i % 2);
    }
    fair_queue_fini(&q);
}

static void test_a_dear_item_is_reached(void **state)
{
    struct fair_queue q;
    struct work dear, cheap[3];
    unsigned turn = 0;

    (void)state;
    fair_queue_init(&q, 1, 0);
    push(&q, &dear, 1, 0, UINT64_C(1) << 40); /* rounds are not walked one by one */
    assert_ptr_equal(pop(&q), &dear);
    push(&q, &dear, 1, 0, 3);
    for (unsigned i = 0; i < 3; i++) {
        push(&q, &cheap[i], 2, i, 1);
    }
    while (pop(&q) != &dear) {
        turn++;
    }
    assert_in_range(turn, 2, 3);
    while (pop(&q) != NULL) {
    }
    fair_queue_fini(&q);
}

static void test_no_client_has_all_seats(void **state)
{
    struct fair_queue q;
    struct work a[4], b, own[4];

    (void)state;
    fair_queue_init(&q, 1, 2);
    for (unsigned i = 0; i < 4; i++) {
        push(&q, &a[i], 1, i, 1);
    }
    assert_ptr_equal(pop(&q), &a[0]);
    assert_ptr_equal(pop(&q), &a[1]);
    assert_null(pop(&q));
    assert_false(fair_queue_ready(&q));
    push(&q, &b, 2, 0, 1);
    assert_true(fair_queue_ready(&q));
    assert_ptr_equal(pop(&q), &b);
    fair_queue_leave(&q, &b.item);
    fair_queue_leave(&q, &a[0].item);
    assert_ptr_equal(pop(&q), &a[2]);
    assert_null(pop(&q));
    for (unsigned i = 0; i < 4; i++) { /* the program itself has no bound */
        push(&q, &own[i], 0, i, 1);
        assert_ptr_equal(pop(&q), &own[i]);
    }
    for (unsigned i = 0; i < 4; i++) {
        fair_queue_leave(&q, &own[i].item);
        fair_queue_leave(&q, &a[i].item); /* one of them still waits */
        fair_queue_leave(&q, &a[i].item);
    }
    assert_int_equal(q.waiting, 0);
    assert_int_equal(q.clients, 0);
    fair_queue_fini(&q);
}

static void test_one_that_leaves_the_queue(void **state)
{
    struct fair_queue q;
    struct work a[3];

    (void)state;
    fair_queue_init(&q, 1, 0);
    for (unsigned i = 0; i < 3; i++) {
        push(&q, &a[i], 5, i, 1);
    }
    fair_queue_leave(&q, &a[1].item);
    assert_int_equal(q.waiting, 2);
    assert_int_equal(fair_queue_waiting(&q, 5), 2);
    assert_int_equal(fair_queue_waiting(&q, 6), 0);
    assert_ptr_equal(pop(&q), &a[0]);
    assert_ptr_equal(pop(&q), &a[2]);
    fair_queue_leave(&q, &a[2].item);
    fair_queue_fini(&q);
}

static void test_an_item_moves_to_whoever_has_it_sooner(void **state)
{
    struct fair_queue q;
    struct work many[20], few[4];

    (void)state;
    fair_queue_init(&q, 1, 0);
    for (unsigned i = 0; i < 20; i++) {
        push(&q, &many[i], 7, i, 1);
    }
    for (unsigned i = 0; i < 4; i++) {
        push(&q, &few[i], 8, i, 1);
    }
    assert_false(fair_queue_move(&q, &many[0].item, 9)); /* it is the next one where it is */
    assert_false(fair_queue_move(&q, &many[4].item, 8)); /* no sooner there */
    assert_true(fair_queue_move(&q, &many[5].item, 8));
    assert_true(fair_queue_move(&q, &many[19].item, 9));
    assert_false(fair_queue_move(&q, &many[19].item, 7)); /* and not back */
    assert_int_equal(fair_queue_waiting(&q, 7), 18);
    assert_int_equal(fair_queue_waiting(&q, 8), 5);
    assert_ptr_equal(pop(&q), &many[0]);
    assert_ptr_equal(pop(&q), &few[0]);
    assert_ptr_equal(pop(&q), &many[19]);
    assert_false(fair_queue_move(&q, &many[19].item, 8)); /* it waits no more */
    while (pop(&q) != NULL) {
    }
    assert_int_equal(q.waiting, 0);
    fair_queue_fini(&q);
}

/* A client that has all it may have running does not serve its next item, whichever that is. */
static void test_an_item_moves_to_whoever_has_room(void **state)
{
    struct fair_queue q;
    struct work a[3], b[2];

    (void)state;
    fair_queue_init(&q, 1, 1);
    for (unsigned i = 0; i < 3; i++) {
        push(&q, &a[i], 1, i, 1);
    }
    push(&q, &b[0], 2, 0, 1);
    assert_ptr_equal(pop(&q), &a[0]);
    assert_true(fair_queue_move(&q, &a[1].item, 3));
    assert_ptr_equal(pop(&q), &b[0]);
    assert_ptr_equal(pop(&q), &a[1]);
    push(&q, &b[1], 4, 1, 1);
    assert_false(fair_queue_move(&q, &b[1].item, 1)); /* it has none */
    fair_queue_leave(&q, &a[0].item);
    assert_ptr_equal(pop(&q), &b[1]);
    assert_ptr_equal(pop(&q), &a[2]);
    for (unsigned i = 1; i < 3; i++) {
        fair_queue_leave(&q, &a[i].item);
    }
    for (unsigned i = 0; i < 2; i++) {
        fair_queue_leave(&q, &b[i].item);
    }
    assert_int_equal(q.clients, 0);
    fair_queue_fini(&q);
}

static void test_shares_of_one(void **state)
{
    static const unsigned all[] = {0, 1, 2, 3, 4, 16, 31, 32, 64, 256},
                          one[] = {0, 1, 1, 2, 3, 15, 30, 30, 60, 240};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        assert_int_equal(fair_share_of_one(all[i]), one[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clients_take_turns),
        cmocka_unit_test(test_shares_of_cost),
        cmocka_unit_test(test_credit_is_for_those_who_wait),
        cmocka_unit_test(test_a_dear_item_is_reached),
        cmocka_unit_test(test_no_client_has_all_seats),
        cmocka_unit_test(test_one_that_leaves_the_queue),
        cmocka_unit_test(test_an_item_moves_to_whoever_has_it_sooner),
        cmocka_unit_test(test_an_item_moves_to_whoever_has_room),
        cmocka_unit_test(test_shares_of_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
