#include "tests/harness/cache_world.h"

#define MIB ((uint64_t)1 << 20)

static const struct cache_settings settings = {.tries = 1};

/* What goes through is right, whether the old makes room for it or what is there is too new to go:
 * then it is refused with a sentence. */
static void a_full_store_makes_room_or_says_so(void **state)
{
    struct world w = {.quota_bytes = 64 * MIB};
    struct cache_stats stats;
    struct store_space space;
    unsigned refused = 0;
    char path[32];

    (void)state;
    world_open(&w, &settings);
    for (unsigned i = 0; i < 12; i++) {
        struct client c;
        snprintf(path, sizeof path, "/room-%u", i);
        put(&w, "%s?size=%d&seed=%u", path, (int)(8 * MIB), i);
        client_init(&c, &w, path);
        client_run(&c);
        if (c.status == 200) {
            assert_got(&c, path);
        } else {
            assert_int_equal(c.status, 503);
            assert_true(c.why[0] != '\0');
            refused++;
        }
        client_fini(&c);
        world_quiet(&w, path);
    }
    cache_stats(w.cache, &stats);
    assert_true(refused + stats.evicted_blobs >= 4);
    store_space(w.store, &space);
    assert_true(space.used_bytes <= 64 * MIB);
    assert_int_equal(space.staged_bytes, 0);
    if (stats.evicted_blobs == 0) {
        get_and_check(&w, "/room-0", CACHE_HIT);
    }
    world_close(&w);
}

/* What can never fit is refused with a sentence; what is there stays and is served. */
static void too_large_is_refused_and_costs_nothing(void **state)
{
    struct world w = {.quota_bytes = 16 * MIB};
    struct client c;

    (void)state;
    world_open(&w, &settings);
    put(&w, "/kept?size=1000000");
    get_and_check(&w, "/kept", CACHE_MISS);
    world_quiet(&w, "/kept");
    put(&w, "/too-large?size=%d", (int)(40 * MIB));
    client_init(&c, &w, "/too-large");
    client_run(&c);
    assert_true(c.status == 507 || c.rc == E_NOSPACE);
    assert_true(c.status != 503 || c.why[0] != '\0');
    client_fini(&c);
    client_init(&c, &w, "/kept");
    client_run(&c);
    assert_got(&c, "/kept");
    client_fini(&c);
    world_close(&w);
}

/* What is parked is on the account, and goes when somebody needs the room. */
static void parked_parts_give_way(void **state)
{
    struct world w = {.quota_bytes = 96 * MIB};
    struct store_space space;
    struct client c;

    (void)state;
    world_open(&w, &settings);
    put(&w, "/parked?size=%d&wall_at=6000000", (int)(80 * MIB));
    client_init(&c, &w, "/parked");
    client_run(&c);
    assert_int_equal(c.rc, E_NETWORK);
    client_fini(&c);
    world_quiet(&w, "/parked");
    store_space(w.store, &space);
    assert_in_range(space.parked_bytes, 5 * MIB, 6 * MIB);
    put(&w, "/needs-it-all?size=%d", (int)(93 * MIB));
    get_and_check(&w, "/needs-it-all", CACHE_MISS);
    store_space(w.store, &space);
    assert_int_equal(space.parked_bytes, 0);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_store_makes_room_or_says_so),
        cmocka_unit_test(too_large_is_refused_and_costs_nothing),
        cmocka_unit_test(parked_parts_give_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
