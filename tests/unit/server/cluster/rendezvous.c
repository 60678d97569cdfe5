#include "server/cluster/rendezvous.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "server/cluster/rests.h"

enum { KEYS = 4000 };

static const char *const node[] = {"a1", "b2", "c3", "d4"};

static size_t responsible(const uint32_t *weight, size_t nodes, int key)
{
    char text[16];
    size_t best = 0;
    double most = 0;

    snprintf(text, sizeof text, "key %d", key);
    for (size_t i = 0; i < nodes; i++) {
        double score = rendezvous_score(node[i], weight[i], slice_str(text));
        assert_true(score > 0);
        if (score > most) {
            most = score;
            best = i;
        }
    }
    return best;
}

static void shares_follow_the_weights(void **state)
{
    static const uint32_t weight[] = {1, 1, 2};
    unsigned keys[3] = {0};

    (void)state;
    for (int k = 0; k < KEYS; k++) {
        keys[responsible(weight, 3, k)]++;
    }
    assert_in_range(keys[0], KEYS / 5, KEYS * 3 / 10);
    assert_in_range(keys[1], KEYS / 5, KEYS * 3 / 10);
    assert_in_range(keys[2], KEYS * 9 / 20, KEYS * 11 / 20);
}

static void a_mirror_that_comes_moves_only_what_it_gets(void **state)
{
    static const uint32_t weight[] = {1, 1, 1, 1};

    (void)state;
    for (int k = 0; k < KEYS; k++) {
        size_t now = responsible(weight, 4, k);
        assert_true(now == 3 || now == responsible(weight, 3, k));
    }
}

static void a_rest_ends_and_is_found_by_name(void **state)
{
    struct rests r = {0};
    char name[MEMBER_ID_ROOM];

    (void)state;
    rests_add(&r, "a1", 1000, 500);
    rests_add(&r, "b2", 1000, 900);
    assert_true(rests_has(&r, "a1", 1499) && rests_has(&r, "b2", 1499));
    assert_false(rests_has(&r, "a1", 1500));
    assert_false(rests_has(&r, "c3", 1000));
    rests_add(&r, "a1", 1600, 500); /* again, in its place */
    assert_true(rests_has(&r, "a1", 2000) && r.n == 2);
    for (int i = 0; i < 2 * MEMBERS_MAX; i++) {
        snprintf(name, sizeof name, "%d", i);
        rests_add(&r, name, 1700, 500);
    }
    assert_true(r.n == MEMBERS_MAX && rests_has(&r, "a1", 2000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_follow_the_weights),
        cmocka_unit_test(a_mirror_that_comes_moves_only_what_it_gets),
        cmocka_unit_test(a_rest_ends_and_is_found_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
