#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "server/fetch/crowd.h"

struct visit {
    struct crowd_ask ask;
    struct crowd_place place;
};

static struct visit *come(struct crowd *w, uint64_t client, bool new_place)
{
    struct visit *v = calloc(1, sizeof *v);

    assert_non_null(v);
    crowd_come(w, &v->ask, client);
    if (new_place) {
        crowd_take(w, &v->place, client);
    }
    return v;
}

static void go(struct crowd *w, struct visit *v)
{
    crowd_go(w, &v->ask);
    if (v->place.account != NULL) {
        crowd_give(w, &v->place);
    }
    free(v);
}

static void test_shares_of_one(void **state)
{
    static const uint32_t all[] = {1, 3, 16, 20, 64, 100, 4096},
                          one[] = {1, 3, 16, 16, 16, 25, 1024};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        assert_int_equal(crowd_share_of_one(all[i]), one[i]);
    }
}

static void test_a_client_has_its_share(void **state)
{
    struct crowd w = {.places_max = 100};
    struct visit *v[25], *again[25 * 7];

    (void)state;
    for (unsigned i = 0; i < 25; i++) {
        assert_true(crowd_admits(&w, 7, true));
        v[i] = come(&w, 7, true);
    }
    assert_false(crowd_admits(&w, 7, true));
    assert_true(crowd_admits(&w, 8, true));
    for (unsigned i = 0; i < 25 * 7; i++) {
        assert_true(crowd_admits(&w, 7, false));
        again[i] = come(&w, 7, false);
    }
    assert_false(crowd_admits(&w, 7, false));
    assert_true(crowd_admits(&w, 8, false));
    for (unsigned i = 0; i < 25 * 7; i++) {
        go(&w, again[i]);
    }
    for (unsigned i = 0; i < 25; i++) {
        go(&w, v[i]);
    }
    assert_null(w.accounts);
}

static void test_whoever_has_most_gives(void **state)
{
    struct crowd w = {.places_max = 20};
    struct visit *many[12], *some[8], *one, *two;
    struct crowd_place *over;

    (void)state;
    for (unsigned i = 0; i < 12; i++) {
        many[i] = come(&w, 1, true);
    }
    for (unsigned i = 0; i < 8; i++) {
        some[i] = come(&w, 2, true);
    }
    assert_null(crowd_place_over(&w));
    assert_false(crowd_admits(&w, 1, true)); /* it would give itself */
    assert_true(crowd_admits(&w, 2, true));
    assert_true(crowd_admits(&w, 3, true));
    one = come(&w, 3, true);
    over = crowd_place_over(&w);
    assert_ptr_equal(over, &many[11]->place); /* what came last */
    assert_int_equal(crowd_client(over->account), 1);
    go(&w, many[11]);
    assert_null(crowd_place_over(&w));
    two = come(&w, 2, false);
    crowd_take(&w, &many[10]->place, 2); /* somebody else waits there: it is on that account */
    assert_int_equal(w.places, 20);
    assert_int_equal(crowd_client(many[10]->place.account), 2);
    go(&w, two);
    go(&w, one);
    for (unsigned i = 0; i < 11; i++) {
        go(&w, many[i]);
    }
    for (unsigned i = 0; i < 8; i++) {
        go(&w, some[i]);
    }
    assert_null(w.accounts);
    assert_int_equal(w.places + w.asks, 0);
}

static void test_equals_give_nothing(void **state)
{
    struct crowd w = {.places_max = 1};
    struct visit *v = come(&w, 1, true);

    (void)state;
    assert_false(crowd_admits(&w, 2, true));
    assert_true(crowd_admits(&w, 2, false));
    go(&w, v);
    assert_true(crowd_admits(&w, 2, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares_of_one),
        cmocka_unit_test(test_a_client_has_its_share),
        cmocka_unit_test(test_whoever_has_most_gives),
        cmocka_unit_test(test_equals_give_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
