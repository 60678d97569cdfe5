#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <event2/event.h>

#include "server/fetch/lane.h"

enum { GREEDY = 7, MODEST = 8 };

struct request {
    struct lane_seat seat;
    struct lane *lane;
    unsigned turn;  /* when it had its seat; 0: not yet */
    unsigned asked; /* how often it was asked to give it back */
};

static struct event_base *base;
static struct origin *origin;
static struct list lanes;
static unsigned turns;

static void on_turn(struct lane_seat *s)
{
    CONTAINER_OF(s, struct request, seat)->turn = ++turns;
}

static void on_wanted(struct lane_seat *s)
{
    struct request *r = CONTAINER_OF(s, struct request, seat);

    r->asked++;
    lane_leave(r->lane, s);
}

static struct lane *open_lane(uint32_t connections, bool alone)
{
    struct origin_settings set = {.url = "http://127.0.0.1:1/", .connections = connections};

    turns = 0;
    base = event_base_new();
    assert_non_null(base);
    list_init(&lanes);
    assert_int_equal(origin_new("data", &set, &origin, NULL), 0);
    return lane_find(&lanes, base, origin, alone);
}

static void close_lane(void)
{
    lanes_close(&lanes);
    origin_free(&origin);
    event_base_free(base);
}

static void ask(struct lane *l, struct request *r, uint64_t client)
{
    *r = (struct request){.seat = {.go = on_turn, .wanted = on_wanted}, .lane = l};
    lane_queue(l, &r->seat, client);
}

static void leave_all(struct lane *l, struct request *r, size_t n)
{
    for (size_t i = n; i-- > 0;) {
        lane_leave(l, &r[i].seat);
    }
}

static void test_of_two_seats_one_is_for_others(void **state)
{
    struct lane *l = open_lane(2, false);
    struct request r[3];

    (void)state;
    ask(l, &r[0], GREEDY);
    ask(l, &r[1], GREEDY);
    ask(l, &r[2], MODEST);
    assert_int_equal(r[0].turn, 1);
    assert_int_equal(r[1].turn, 0);
    assert_int_equal(r[2].turn, 2);
    leave_all(l, r, 3);
    close_lane();
}

static void test_a_program_alone_has_all(void **state)
{
    struct lane *l = open_lane(2, true);
    struct request r[2];

    (void)state;
    ask(l, &r[0], 0);
    ask(l, &r[1], 0);
    assert_int_equal(r[1].turn, 2);
    leave_all(l, r, 2);
    close_lane();
}

static void test_whoever_joins_brings_its_turn(void **state)
{
    struct lane *l = open_lane(1, false);
    struct request r[10];

    (void)state;
    for (unsigned i = 0; i < 10; i++) {
        ask(l, &r[i], GREEDY);
    }
    lane_move(l, &r[9].seat, MODEST);
    lane_leave(l, &r[0].seat);
    assert_int_equal(r[9].turn, 2);
    lane_leave(l, &r[9].seat);
    assert_int_equal(r[1].turn, 3);
    leave_all(l, r, 10);
    close_lane();
}

static void test_a_seat_that_is_lent_is_called_in_when_others_wait(void **state)
{
    struct lane *l = open_lane(1, false);
    struct request r[3];

    (void)state;
    ask(l, &r[0], GREEDY);
    lane_lend(l, &r[0].seat, true);
    event_base_loop(base, EVLOOP_NONBLOCK);
    assert_int_equal(r[0].asked, 0); /* nobody waits */
    ask(l, &r[1], MODEST);
    assert_int_equal(r[0].asked, 0); /* not within the call */
    event_base_loop(base, EVLOOP_NONBLOCK);
    assert_int_equal(r[0].asked, 1);
    assert_int_equal(r[1].turn, 2);

    ask(l, &r[2], GREEDY); /* others wait already */
    lane_lend(l, &r[1].seat, true);
    event_base_loop(base, EVLOOP_NONBLOCK);
    assert_int_equal(r[2].turn, 3);

    ask(l, &r[0], MODEST);
    lane_lend(l, &r[2].seat, true);
    lane_lend(l, &r[2].seat, false); /* somebody reads it again */
    event_base_loop(base, EVLOOP_NONBLOCK);
    assert_int_equal(r[2].asked, 0);
    leave_all(l, r, 3);
    close_lane();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_two_seats_one_is_for_others),
        cmocka_unit_test(test_a_program_alone_has_all),
        cmocka_unit_test(test_whoever_joins_brings_its_turn),
        cmocka_unit_test(test_a_seat_that_is_lent_is_called_in_when_others_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
