#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "server/peers/peers.h"

static const struct peers_settings on = {.again_s = 5, .lease_s = 60, .members = 3};

static struct digest name(uint32_t n)
{
    struct digest d = {{0}};

    memcpy(d.b, &n, sizeof n);
    return d;
}

/* A file of `chunks`; member n of it, a client's, has none of them. */
static int come_of(struct peers *p, uint64_t client, uint32_t file, size_t chunks, uint32_t n,
                   uint64_t now_ms, struct swarm_answer *out, bool *began)
{
    static const uint8_t from[SWARM_ADDRESS] = {[10] = 0xff, [11] = 0xff, 10, 0, 0, 1};
    struct node_announcement a = {
        .port = 1, .take = 1, .have = calloc(1, chunks), .have_bytes = (chunks + 7) / 8};
    struct digest d = name(file);
    struct err e = {0};
    bool first;
    int rc;

    memcpy(a.id, &n, sizeof n);
    rc = peers_announce(p, &d, (chunks - 1) * CHUNK_BYTES + 1, client, &a, from, now_ms, out,
                        &first, &e);
    if (began != NULL) {
        *began = first;
    }
    assert_true((rc == 0) == (e.text[0] == '\0'));
    announcement_free(&a);
    return rc;
}

static int come(struct peers *p, uint32_t file, size_t chunks, uint32_t n, uint64_t now_ms,
                struct swarm_answer *out, bool *began)
{
    return come_of(p, 1, file, chunks, n, now_ms, out, began);
}

static struct peers_stats stats(struct peers *p)
{
    struct peers_stats s;

    peers_stats(p, &s);
    return s;
}

static void a_swarm_lives_as_long_as_members(void **state)
{
    struct peers *p = peers_open(&on);
    struct swarm_answer a, b;
    struct swarm_view v[4];
    struct digest one = name(1), two = name(2);
    uint8_t id[ANNOUNCEMENT_ID] = {7};
    bool began;

    (void)state;
    assert_int_equal(come(p, 1, 10, 7, 0, &a, &began), 0);
    assert_true(began);
    peers_name(p, &one, SLICE("hf"), SLICE("models/x"));
    peers_name(p, &two, SLICE("nobody"), SLICE("shares it"));
    assert_int_equal(come(p, 1, 10, 8, 0, &b, &began), 0);
    assert_false(began);
    assert_memory_equal(a.key, b.key, SWARM_KEY);
    assert_int_equal(come(p, 2, 10, 8, 1000, &b, &began), 0);
    assert_true(began && memcmp(a.key, b.key, SWARM_KEY) != 0);
    assert_int_equal(peers_look(p, 3000, v, 4), 2);
    assert_int_equal(peers_look(p, 3000, v, 1), 1);
    assert_string_equal(v[0].key, "models/x");
    assert_string_equal(v[1].key, "");
    assert_int_equal(v[0].age_ms, 3000);
    assert_int_equal(v[0].count.members, 2);
    assert_int_equal(v[0].count.asked, 2);
    assert_int_equal(stats(p).members, 3);
    peers_leave(p, &one, id);
    peers_leave(p, &one, id);
    id[0] = 8;
    peers_leave(p, &one, id);
    assert_int_equal(stats(p).swarms, 1);
    assert_int_equal(come(p, 1, 10, 7, 3000, &b, &began), 0);
    assert_true(began && memcmp(a.key, b.key, SWARM_KEY) != 0);
    peers_tick(p, 15999);
    assert_int_equal(stats(p).members, 2);
    peers_tick(p, 16000);
    assert_int_equal(stats(p).members, 1);
    a = b;
    assert_int_equal(come(p, 1, 10, 9, 18000, &b, &began), 0); /* the other is just gone */
    assert_true(began && memcmp(a.key, b.key, SWARM_KEY) != 0);
    assert_int_equal(b.members, 1);
    assert_int_equal(stats(p).announcements, 5);
    assert_int_equal(stats(p).handed, 5);
    peers_close(&p);
    assert_null(p);
}

static void off_is_off(void **state)
{
    const struct peers_settings off = {0};
    struct peers *p = peers_open(&off);
    struct swarm_answer a;

    (void)state;
    assert_false(peers_on(p));
    assert_int_equal(come(p, 1, 10, 1, 0, &a, NULL), E_NOTFOUND);
    peers_set(p, &on);
    assert_int_equal(come(p, 1, 10, 1, 0, &a, NULL), 0);
    peers_set(p, &off);
    assert_int_equal(stats(p).swarms + stats(p).members, 0);
    assert_int_equal(come(p, 1, 10, 1, 0, &a, NULL), E_NOTFOUND);
    peers_close(&p);
}

/* What members make it keep has an end, whoever they are; and is given back. */
static void bounds(void **state)
{
    const struct peers_settings wide = {.again_s = 5, .lease_s = 60, .members = 65535};
    struct peers *p = peers_open(&on);
    struct swarm_answer a;
    bool began;
    uint32_t n;

    (void)state;
    for (n = 0; n < 3; n++) {
        assert_int_equal(come(p, 1, 10, n, 0, &a, NULL), 0);
    }
    assert_int_equal(come(p, 1, 10, 3, 0, &a, NULL), E_BUSY);
    for (n = 2; n <= SWARMS_MAX; n++) {
        assert_int_equal(come(p, n, 1, 1, 0, &a, NULL), 0);
    }
    assert_int_equal(come(p, n, 1, 1, 0, &a, NULL), E_BUSY);
    assert_int_equal(come(p, 2, 1, 1, 0, &a, NULL), 0);
    assert_int_equal(come(p, 1, 11 * 8, 1, 0, &a, NULL), E_INVALID); /* of another size */
    assert_int_equal(stats(p).refused, 2);
    peers_tick(p, 15000);
    assert_int_equal(stats(p).swarms, 0);
    peers_set(p, &wide);
    for (n = 0; come(p, 1, 1500000, n, 15000, &a, NULL) == 0; n++) { /* some 190 KB each */
    }
    assert_in_range(n, 1000, 1400);
    assert_int_equal(come(p, 1, 1500000, 0, 15000, &a, NULL), 0);
    assert_int_equal(come(p, 2, 1500000, 1, 15000, &a, &began), E_BUSY);
    peers_tick(p, 30000);
    assert_int_equal(come(p, 2, 1500000, 1, 30000, &a, &began), 0);
    assert_true(began);
    peers_close(&p);
}

static void who_has_most_gives_way(void **state)
{
    enum { GREEDY = 1, MODEST, THIRD };
    struct peers *p = peers_open(&on);
    struct swarm_answer a;
    bool began;
    uint32_t n;

    (void)state;
    for (n = 0; n < SWARMS_MAX; n++) {
        assert_int_equal(come_of(p, GREEDY, n, 1, 1, 0, &a, NULL), 0);
    }
    assert_int_equal(come_of(p, GREEDY, n, 1, 1, 0, &a, NULL), E_BUSY);
    for (uint32_t i = 0; i < SWARMS_MAX / 2; i++) { /* as many as the other keeps */
        assert_int_equal(come_of(p, MODEST, n + i, 1, 1, 0, &a, &began), 0);
        assert_true(began);
    }
    assert_int_equal(come_of(p, MODEST, 2 * n, 1, 1, 0, &a, NULL), E_BUSY);
    assert_int_equal(come_of(p, GREEDY, 3 * n, 1, 1, 0, &a, NULL), E_BUSY);
    assert_int_equal(come_of(p, THIRD, 4 * n, 1, 1, 0, &a, &began), 0);
    assert_true(began);
    assert_int_equal(stats(p).swarms, SWARMS_MAX);
    assert_int_equal(come_of(p, MODEST, 0, 1, 2, 0, &a, &began), 0); /* the oldest stayed */
    assert_false(began);
    peers_close(&p);
}

static void who_holds_most_memory_gives_way(void **state)
{
    enum { GREEDY = 1, MODEST };
    const struct peers_settings wide = {.again_s = 5, .lease_s = 60, .members = 65535};
    struct peers *p = peers_open(&wide);
    struct swarm_answer a;
    bool began;
    uint32_t file = 0;

    (void)state;
    while (come_of(p, GREEDY, file, 1500000, 1, 0, &a, NULL) == 0) {
        file++;
    }
    assert_in_range(file, 20, SWARMS_MAX - 1);
    assert_int_equal(come_of(p, MODEST, file, 1500000, 1, 0, &a, &began), 0);
    assert_true(began);
    assert_int_equal(come_of(p, MODEST, file, 1500000, 2, 0, &a, NULL), 0);
    peers_close(&p);
}

static void a_swarm_that_nobody_got_into_is_none(void **state)
{
    struct peers *p = peers_open(&on);
    struct node_announcement a = {.port = 1, .have = calloc(1, 9), .have_bytes = 9};
    const uint8_t from[SWARM_ADDRESS] = {0};
    struct digest d = name(1);
    struct swarm_answer out;
    bool began;

    (void)state;
    assert_int_equal(peers_announce(p, &d, CHUNK_BYTES, 1, &a, from, 0, &out, &began, NULL),
                     E_INVALID);
    assert_int_equal(stats(p).swarms, 0);
    announcement_free(&a);
    peers_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_swarm_lives_as_long_as_members),
        cmocka_unit_test(off_is_off),
        cmocka_unit_test(bounds),
        cmocka_unit_test(who_has_most_gives_way),
        cmocka_unit_test(who_holds_most_memory_gives_way),
        cmocka_unit_test(a_swarm_that_nobody_got_into_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
