#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <event2/event.h>

#include "server/fetch/origin_queue.h"

enum { GREEDY = 7, MODEST = 8 };

struct request {
    struct origin_queue_slot slot;
    struct origin_queue *origin_queue;
    unsigned turn;  /* when it had its seat; 0: not yet */
    unsigned asked; /* how often it was asked to give it back */
};

static struct event_base *base;
static struct origin *origin;
static struct list origin_queues;
static unsigned turns;

static void on_turn(struct origin_queue_slot *s)
{
    CONTAINER_OF(s, struct request, slot)->turn = ++turns;
}

static void on_wanted(struct origin_queue_slot *s)
{
    struct request *r = CONTAINER_OF(s, struct request, slot);

    r->asked++;
    origin_queue_leave(r->origin_queue, s);
}

static struct origin_queue *open_origin_queue(uint32_t connections, bool alone)
{
    struct origin_settings set = {.url = "http://127.0.0.1:1/", .connections = connections};

    turns = 0;
    base = event_base_new();
    assert_non_null(base);
    list_init(&origin_queues);
    assert_int_equal(origin_new("data", &set, &origin, NULL), 0);
    return origin_queue_find(&origin_queues, base, origin, alone);
}

static void close_origin_queue(void)
{
    origin_queues_close(&origin_queues);
    origin_free(&origin);
    event_base_free(base);
}

static void ask(struct origin_queue *l, struct request *r, uint64_t client)
{
    *r = (struct request){.slot = {.go = on_turn, .wanted = on_wanted}, .origin_queue = l};
    origin_queue_enter(l, &r->slot, client);
}

static void leave_all(struct origin_queue *l, struct request *r, size_t n)
{
    for (size_t i = n; i-- > 0;) {
        origin_queue_leave(l, &r[i].slot);
    }
}

static void test_of_two_seats_one_is_for_others(void **state)
{
    struct origin_queue *l = open_origin_queue(2, false);
    struct request r[3];

    (void)state;
    ask(l, &r[0], GREEDY);
    ask(l, &r[1], GREEDY);
    ask(l, &r[2], MODEST);
    assert_int_equal(r[0].turn, 1);
    assert_int_equal(r[1].turn, 0);
    assert_int_equal(r[2].turn, 2);
    leave_all(l, r, 3);
    close_origin_queue();
}

static void test_a_program_alone_has_all(void **state)
{
    struct origin_queue *l = open_origin_queue(2, true);
    struct request r[2];

    (void)state;
    ask(l, &r[0], 0);
    ask(l, &r[1], 0);
    assert_int_equal(r[1].turn, 2);
    leave_all(l, r, 2);
    close_origin_queue();
}

static void test_whoever_joins_brings_its_turn(void **state)
{
    struct origin_queue *l = open_origin_queue(1, false);
    struct request r[10];

    (void)state;
    for (unsigned i = 0; i < 10; i++) {
        ask(l, &r[i], GREEDY);
    }
    origin_queue_move(l, &r[9].slot, MODEST);
    origin_queue_leave(l, &r[0].slot);
    assert_int_equal(r[9].turn, 2);
    origin_queue_leave(l, &r[9].slot);
    assert_int_equal(r[1].turn, 3);
    leave_all(l, r, 10);
    close_origin_queue();
}

static void test_a_slot_that_is_lent_is_called_in_when_others_wait(void **state)
{
    struct origin_queue *l = open_origin_queue(1, false);
    struct request r[3];

    (void)state;
    ask(l, &r[0], GREEDY);
    origin_queue_lend(l, &r[0].slot, true);
    event_base_loop(base, EVLOOP_NONBLOCK);
    assert_int_equal(r[0].asked, 0); /* nobody waits */
    ask(l, &r[1], MODEST);
    assert_int_equal(r[0].asked, 0); /* not within the call */
    event_base_loop(base, EVLOOP_NONBLOCK);
    assert_int_equal(r[0].asked, 1);
    assert_int_equal(r[1].turn, 2);

    ask(l, &r[2], GREEDY); /* others wait already */
    origin_queue_lend(l, &r[1].slot, true);
    event_base_loop(base, EVLOOP_NONBLOCK);
    assert_int_equal(r[2].turn, 3);

    ask(l, &r[0], MODEST);
    origin_queue_lend(l, &r[2].slot, true);
    origin_queue_lend(l, &r[2].slot, false); /* somebody reads it again */
    event_base_loop(base, EVLOOP_NONBLOCK);
    assert_int_equal(r[2].asked, 0);
    leave_all(l, r, 3);
    close_origin_queue();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_two_seats_one_is_for_others),
        cmocka_unit_test(test_a_program_alone_has_all),
        cmocka_unit_test(test_whoever_joins_brings_its_turn),
        cmocka_unit_test(test_a_slot_that_is_lent_is_called_in_when_others_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
