#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <event2/event.h>
#include <event2/thread.h>
#include <pthread.h>

#include "server/http/body_memory.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

struct world {
    struct event_base *base;
    struct message_queue *mail;
    struct body_memory *memory;
    struct body_port port;
};

static struct world w;
static struct body_use *ended;
static bool spares; /* what is to end: it is needed */

static void on_end(struct body_use *u)
{
    ended = u;
    if (spares) {
        body_memory_spare(w.memory, u);
    } else {
        body_memory_drop(w.memory, u);
    }
}

static int setup(void **state)
{
    (void)state;
    ended = NULL;
    w.base = event_base_new();
    w.mail = message_queue_open(w.base);
    w.memory = body_memory_open(MIB);
    body_port_init(&w.port, w.mail, on_end);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    body_memory_close(&w.memory);
    message_queue_close(&w.mail);
    event_base_free(w.base);
    return 0;
}

static bool hold(struct body_use *u, uint64_t client, size_t bytes)
{
    return body_memory_hold(w.memory, &w.port, u, client, u->kind, bytes);
}

static uint64_t held(void)
{
    struct body_memory_stats st;

    body_memory_stats(w.memory, &st);
    return st.bytes;
}

static void drop(struct body_use *u, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        body_memory_drop(w.memory, &u[i]);
    }
    assert_int_equal(held(), 0);
}

static void test_one_client_has_all_and_no_more(void **state)
{
    struct body_use u[17] = {{.bytes = 0}};

    (void)state;
    for (unsigned i = 0; i < 16; i++) {
        assert_true(hold(&u[i], 1, 60 * KIB));
        assert_true(hold(&u[i], 1, 64 * KIB));
        assert_true(hold(&u[i], 1, 10)); /* it had more */
    }
    assert_int_equal(held(), MIB);
    assert_false(hold(&u[16], 1, 1));
    assert_false(hold(&u[0], 1, 65 * KIB));
    drop(u, 17);
}

static void test_the_largest_holder_gives(void **state)
{
    struct body_use greedy[4] = {{.kind = BODY_MAY_END},
                                 {.kind = BODY_MAY_END},
                                 {.kind = BODY_IN_USE},
                                 {.kind = BODY_MAY_END}};
    struct body_use modest = {.kind = BODY_MAY_END};

    (void)state;
    assert_true(hold(&greedy[0], 1, 128 * KIB));
    assert_true(hold(&greedy[1], 1, 256 * KIB));
    assert_true(hold(&greedy[2], 1, 512 * KIB)); /* the largest, and in use */
    assert_true(hold(&greedy[3], 1, 128 * KIB));
    assert_true(hold(&modest, 2, 100 * KIB));
    event_base_loop(w.base, EVLOOP_NONBLOCK);
    assert_ptr_equal(ended, &greedy[1]);
    assert_int_equal(held(), MIB - 256 * KIB + 128 * KIB);
    body_memory_drop(w.memory, &modest);
    drop(greedy, 4);
}

static void test_no_more_ends_than_is_needed(void **state)
{
    struct body_use greedy[4] = {{.kind = BODY_MAY_END},
                                 {.kind = BODY_MAY_END},
                                 {.kind = BODY_MAY_END},
                                 {.kind = BODY_MAY_END}};
    struct body_use modest = {.kind = BODY_MAY_END};
    struct body_memory_stats st;

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        assert_true(hold(&greedy[i], 1, 256 * KIB));
    }
    for (size_t bytes = 16 * KIB; bytes <= 256 * KIB; bytes += 16 * KIB) {
        assert_true(hold(&modest, 2, bytes));
    }
    body_memory_stats(w.memory, &st);
    assert_int_equal(st.ended, 1);
    body_memory_spare(w.memory,
                      &greedy[0]); /* whichever it was: it is counted again as one that stays */
    body_memory_drop(w.memory, &modest);
    drop(greedy, 4);
    assert_int_equal(held(), 0);
}

/* Two loops past the bound: what one of them has just begun to hold may be ended by the other. */
static struct body_port ports[2];

static void *hold_and_drop(void *arg)
{
    struct body_port *port = arg;
    bool greedy = port == &ports[0];

    for (int i = 0; i < 100000; i++) {
        struct body_use u = {0};
        (void)body_memory_hold(w.memory, port, &u, greedy ? 1 : 2,
                               greedy ? BODY_MAY_END : BODY_IN_USE, greedy ? 600 * KIB : 500 * KIB);
        body_memory_drop(w.memory, &u);
    }
    return NULL;
}

static void test_two_loops_past_the_bound(void **state)
{
    pthread_t threads[2];

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        body_port_init(&ports[i], w.mail, on_end);
        assert_int_equal(pthread_create(&threads[i], NULL, hold_and_drop, &ports[i]), 0);
    }
    for (size_t i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    event_base_loop(w.base, EVLOOP_NONBLOCK);
    assert_int_equal(held(), 0);
}

static void test_nobody_grows_past_the_largest(void **state)
{
    struct body_use a = {.kind = BODY_IN_USE}, b = {.kind = BODY_IN_USE};

    (void)state;
    assert_true(hold(&a, 1, 640 * KIB));
    assert_true(hold(&b, 2, 384 * KIB));
    assert_true(
        hold(&b, 2, 640 * KIB)); /* none of the other's may end: at most twice the bound is held */
    assert_false(hold(&b, 2, 704 * KIB));
    assert_false(hold(&a, 1, 704 * KIB));
    body_memory_drop(w.memory, &a);
    body_memory_drop(w.memory, &b);
    assert_int_equal(held(), 0);
}

static void test_a_quarter_is_not_for_those_who_can_wait(void **state)
{
    struct body_use upload = {.kind = BODY_CAN_WAIT}, form = {.kind = BODY_MAY_END};

    (void)state;
    assert_true(hold(&upload, 1, 768 * KIB));
    assert_false(hold(&upload, 1, 832 * KIB));
    assert_true(hold(&form, 1, 256 * KIB));
    assert_false(hold(&form, 1, 320 * KIB));
    body_memory_drop(w.memory, &upload);
    body_memory_drop(w.memory, &form);
    assert_int_equal(held(), 0);
}

static void deliver(void)
{
    event_base_loop(w.base, EVLOOP_NONBLOCK);
}

static void test_what_nobody_uses_goes_first(void **state)
{
    struct body_use mine = {.bytes = 0}, newer = {.bytes = 0}, older = {.bytes = 0},
                    busy = {.bytes = 0};

    (void)state;
    assert_true(body_memory_hold(w.memory, &w.port, &older, 1, BODY_SPARE, 300 * KIB));
    assert_true(body_memory_hold(w.memory, &w.port, &newer, 1, BODY_SPARE, 100 * KIB));
    assert_true(body_memory_hold(w.memory, &w.port, &busy, 2, BODY_SPARE, 500 * KIB));
    busy.kind = BODY_IN_USE;
    mine.kind = BODY_MAY_END;
    assert_true(hold(&mine, 1, 200 * KIB)); /* of a client's own, too */
    deliver();
    assert_ptr_equal(ended, &older);
    assert_true(body_memory_hold(w.memory, &w.port, &busy, 2, BODY_SPARE, 500 * KIB));
    assert_true(hold(&mine, 1, 400 * KIB));
    deliver();
    assert_ptr_equal(ended, &busy); /* its client holds more than the other */
    assert_true(hold(&mine, 1, 900 * KIB));
    deliver();
    assert_ptr_equal(ended, &newer);
    assert_int_equal(held(), 960 * KIB);
    drop(&mine, 1);
}

static void test_a_spare_one_that_is_used_again(void **state)
{
    struct body_use kept = {.bytes = 0}, mine = {.bytes = 0};

    (void)state;
    spares = true;
    assert_true(body_memory_hold(w.memory, &w.port, &kept, 1, BODY_SPARE, 600 * KIB));
    mine.kind = BODY_IN_USE;
    assert_true(hold(&mine, 1, 600 * KIB));
    kept.kind = BODY_IN_USE;
    deliver();
    assert_int_equal(held(), 1280 * KIB);
    assert_false(hold(&mine, 1, 700 * KIB)); /* there is nothing more to end */
    spares = false;
    assert_true(body_memory_hold(w.memory, &w.port, &kept, 1, BODY_SPARE, 600 * KIB));
    deliver();
    assert_int_equal(held(), 640 * KIB); /* nobody uses it any more, and others wait for the room */
    drop(&mine, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_client_has_all_and_no_more, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_largest_holder_gives, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_quarter_is_not_for_those_who_can_wait, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_nobody_grows_past_the_largest, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_more_ends_than_is_needed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_two_loops_past_the_bound, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_nobody_uses_goes_first, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_spare_one_that_is_used_again, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
