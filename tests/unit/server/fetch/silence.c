/* When an origin counts as silent, and when no more. */
#include "server/fetch/silence.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

enum { PATIENCE = 1000, KEPT = 10000, PROBE = 3000 };

static enum origin_word word(struct silence *s, uint64_t now)
{
    struct err why;

    return silence_word(s, PATIENCE, now, &why);
}

static void fail_at(struct silence *s, uint64_t began, uint64_t now)
{
    struct err why;

    err_set(&why, E_NETWORK, "cannot connect");
    silence_left(s, PATIENCE, now);
    silence_failed(s, began, now, &why);
}

/* Two requests, one after the other, without a word. */
static struct silence silent_at(uint64_t now)
{
    struct silence s = {0};

    silence_asked(&s, PATIENCE, now - 2 * PATIENCE);
    silence_asked(&s, PATIENCE, now - PATIENCE);
    assert_int_equal(word(&s, now), ORIGIN_SILENT);
    return s;
}

static void what_was_not_asked_is_not_silent(void **state)
{
    struct silence s = {0};

    (void)state;
    assert_int_equal(word(&s, 0), ORIGIN_HEARD);
    assert_int_equal(word(&s, 1u << 30), ORIGIN_HEARD);
}

static void one_slow_answer_is_a_doubt_and_no_more(void **state)
{
    struct silence s = {0};

    (void)state;
    silence_asked(&s, PATIENCE, 100);
    assert_int_equal(word(&s, 100 + PATIENCE - 1), ORIGIN_HEARD);
    assert_int_equal(word(&s, 100 + PATIENCE), ORIGIN_DOUBTED);
    assert_int_equal(word(&s, 100 + 50 * PATIENCE), ORIGIN_DOUBTED);
    silence_asked(&s, PATIENCE, 100 + 50 * PATIENCE);
    silence_answered(&s, 200 + 50 * PATIENCE);
    assert_int_equal(word(&s, 200 + 50 * PATIENCE), ORIGIN_HEARD);
    assert_int_equal(word(&s, 200 + 51 * PATIENCE), ORIGIN_DOUBTED); /* the first still waits */
}

static void bytes_of_others_are_a_word(void **state)
{
    struct silence s = {0};

    (void)state;
    silence_asked(&s, PATIENCE, 0);
    for (uint64_t now = 0; now < 10 * PATIENCE; now += PATIENCE / 2) {
        silence_heard(&s, now);
        assert_int_equal(word(&s, now), ORIGIN_HEARD);
    }
}

static void two_without_a_word_are_silence(void **state)
{
    struct silence s = silent_at(50000);

    (void)state;
    assert_int_equal(word(&s, 50000 + 5 * KEPT), ORIGIN_SILENT); /* as long as somebody waits */
    silence_left(&s, PATIENCE, 50000 + 5 * KEPT);
    silence_left(&s, PATIENCE, 50000 + 5 * KEPT);
    assert_int_equal(word(&s, 50000 + 6 * KEPT - 1), ORIGIN_SILENT);
    assert_int_equal(word(&s, 50000 + 6 * KEPT), ORIGIN_DOUBTED);
    silence_asked(&s, PATIENCE, 50000 + 7 * KEPT);
    assert_int_equal(word(&s, 50000 + 7 * KEPT + PATIENCE), ORIGIN_SILENT);
    silence_answered(&s, 50000 + 8 * KEPT);
    assert_int_equal(word(&s, 50000 + 8 * KEPT), ORIGIN_HEARD);
}

static void refused_twice_is_silence(void **state)
{
    struct silence s = {0};
    struct err why = {0};

    (void)state;
    silence_asked(&s, PATIENCE, 10);
    fail_at(&s, 10, 20);
    assert_int_equal(silence_word(&s, PATIENCE, 20, &why), ORIGIN_DOUBTED);
    assert_int_equal(why.code, E_NETWORK);
    silence_asked(&s, PATIENCE, 30);
    fail_at(&s, 30, 40);
    assert_int_equal(word(&s, 40), ORIGIN_SILENT);
}

static void what_began_before_a_word_says_nothing(void **state)
{
    struct silence s = {0};

    (void)state;
    silence_asked(&s, PATIENCE, 10);
    silence_asked(&s, PATIENCE, 20);
    silence_answered(&s, 30);
    fail_at(&s, 10, 40);
    assert_int_equal(word(&s, 40), ORIGIN_HEARD);
}

static void one_asks_whether_it_is_back(void **state)
{
    struct silence s = silent_at(50000);

    (void)state;
    assert_false(silence_probe(&s, 50000));
    assert_true(silence_probe(&s, 50000 + PROBE));
    assert_false(silence_probe(&s, 50001 + PROBE));
    assert_true(silence_probe(&s, 50000 + 2 * PROBE));
    silence_answered(&s, 60000);
    assert_false(silence_probe(&s, 90000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_not_asked_is_not_silent),
        cmocka_unit_test(one_slow_answer_is_a_doubt_and_no_more),
        cmocka_unit_test(bytes_of_others_are_a_word),
        cmocka_unit_test(two_without_a_word_are_silence),
        cmocka_unit_test(refused_twice_is_silence),
        cmocka_unit_test(what_began_before_a_word_says_nothing),
        cmocka_unit_test(one_asks_whether_it_is_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
