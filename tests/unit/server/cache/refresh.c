#include "tests/harness/cache_world.h"

static const struct cache_settings settings = {.tries = 1};
static struct world world;

static int setup(void **state)
{
    (void)state;
    world = (struct world){0};
    world_open(&world, &settings);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_close(&world);
    return 0;
}

static void lookup_page(struct client *c, const char *path)
{
    client_init(c, &world, path);
    c->lookup.class = LOOKUP_MUTABLE;
}

/* One GET of a mutable key, right by the origin's present script. */
static void page(const char *path, enum cache_state state, uint32_t sie_s)
{
    struct client c;

    lookup_page(&c, path);
    c.lookup.sie_s = sie_s;
    client_run(&c);
    if (c.status != 200 || c.state != state) {
        fail_msg("%s: status %d state %d, not %d: %s", path, c.status, c.state, state, c.why);
    }
    client_fini(&c);
    world_quiet(&world, path);
}

static void fresh_pages_cost_nothing(void **state)
{
    (void)state;
    put(&world, "/fresh?size=5000&fields=cache-control:max-age=60");
    page("/fresh", CACHE_MISS, 0);
    page("/fresh", CACHE_HIT, 0);
    assert_int_equal(stat_of(&world, "/fresh", "requests"), 1);
}

static void stale_pages_are_asked_about_once(void **state)
{
    static struct client c[20];

    (void)state;
    put(&world, "/stale?size=5000&fields=cache-control:max-age=0&delay=0.05");
    page("/stale", CACHE_MISS, 0);
    for (unsigned i = 0; i < ARRAY_LEN(c); i++) {
        lookup_page(&c[i], "/stale");
        client_go(&c[i], i);
    }
    for (unsigned i = 0; i < ARRAY_LEN(c); i++) {
        client_wait(&c[i]);
        assert_got(&c[i], "/stale");
        assert_int_equal(c[i].state, CACHE_REVALIDATED);
        client_fini(&c[i]);
    }
    assert_int_equal(stat_of(&world, "/stale", "bytes"), 5000);
    assert_int_equal(stat_of(&world, "/stale", "not_modified"), 1);
}

static void a_date_alone_validates(void **state)
{
    (void)state;
    put(&world, "/dated?size=5000&etag=none&fields=cache-control:max-age=0");
    page("/dated", CACHE_MISS, 0);
    page("/dated", CACHE_REVALIDATED, 0);
}

static void a_304_of_another_one_is_asked_again_plainly(void **state)
{
    (void)state;
    put(&world, "/other-304?size=5000&fields=cache-control:max-age=0");
    page("/other-304", CACHE_MISS, 0);
    put(&world, "/other-304?size=6000&seed=3&stale_304=1&fields=cache-control:max-age=0");
    page("/other-304", CACHE_REFRESHED, 0);
    assert_int_equal(stat_of(&world, "/other-304", "requests"), 2);
}

static void a_new_page_takes_the_place_of_the_old(void **state)
{
    struct client c;

    (void)state;
    put(&world, "/new?size=5000&fields=cache-control:max-age=0");
    page("/new", CACHE_MISS, 0);
    put(&world, "/new?size=6000&seed=9&fields=cache-control:max-age=60");
    lookup_page(&c, "/new");
    client_run(&c);
    assert_got(&c, "/new");
    assert_int_equal(c.state, CACHE_REFRESHED);
    client_fini(&c);
    world_quiet(&world, "/new");
    lookup_page(&c, "/new");
    client_run(&c);
    assert_got(&c, "/new");
    assert_int_equal(c.state, CACHE_HIT);
    client_fini(&c);
}

static void trouble_serves_the_old_one_and_says_so(void **state)
{
    struct client c;

    (void)state;
    put(&world, "/trouble?size=5000&fields=cache-control:max-age=0");
    page("/trouble", CACHE_MISS, 0);
    put(&world, "/trouble?size=5000&status=500");
    page("/trouble", CACHE_STALE, UINT32_MAX);
    page("/trouble", CACHE_STALE, UINT32_MAX);
    assert_int_equal(stat_of(&world, "/trouble", "requests"), 1); /* it is left alone for a while */
    lookup_page(&c, "/trouble");
    client_run(&c); /* this want allows nothing stale */
    assert_int_equal(c.status, 502);
    client_fini(&c);
}

static void must_revalidate_forbids_the_old_one(void **state)
{
    struct client c;

    (void)state;
    put(&world, "/must?size=5000&fields=cache-control:max-age=0,must-revalidate");
    page("/must", CACHE_MISS, 0);
    put(&world, "/must?size=5000&no_head=1");
    lookup_page(&c, "/must");
    c.lookup.sie_s = UINT32_MAX;
    client_run(&c);
    assert_int_equal(c.status, 502);
    client_fini(&c);
}

static void the_old_one_is_served_while_it_is_renewed(void **state)
{
    (void)state;
    put(&world,
        "/swr?size=5000&fields=cache-control:max-age=0,stale-while-revalidate=60&delay=0.05");
    page("/swr", CACHE_MISS, 0);
    page("/swr", CACHE_UPDATING, 0);
    world_quiet(&world, "/swr");
    for (int i = 0; stat_of(&world, "/swr", "not_modified") == 0; i++) {
        assert_true(i < 1000);
        usleep(5000);
    }
}

static void no_store_is_not_kept(void **state)
{
    static struct client c[10];

    (void)state;
    put(&world, "/no-store?size=50000&fields=cache-control:no-store");
    for (unsigned i = 0; i < ARRAY_LEN(c); i++) {
        lookup_page(&c[i], "/no-store");
        client_go(&c[i], i);
    }
    for (unsigned i = 0; i < ARRAY_LEN(c); i++) {
        client_wait(&c[i]);
        assert_got(&c[i], "/no-store");
        client_fini(&c[i]);
    }
    world_quiet(&world, "/no-store");
    page("/no-store", CACHE_MISS, 0);
    put(&world, "/immutable-no-store?size=50000&fields=cache-control:no-store");
    get_and_check(&world, "/immutable-no-store", CACHE_MISS);
    world_quiet(&world, "/immutable-no-store");
    get_and_check(&world, "/immutable-no-store", CACHE_HIT);
}

static void a_client_may_ask_for_a_look(void **state)
{
    struct client c;

    (void)state;
    put(&world, "/look?size=5000&fields=cache-control:max-age=60");
    page("/look", CACHE_MISS, 0);
    lookup_page(&c, "/look");
    c.lookup.request_cache_control.refresh = true;
    client_run(&c);
    assert_int_equal(c.state, CACHE_REVALIDATED);
    client_fini(&c);
    lookup_page(&c, "/look");
    c.lookup.request_cache_control.refresh = true;
    c.lookup.floor_s = 5; /* but not all the time */
    client_run(&c);
    assert_int_equal(c.state, CACHE_HIT);
    client_fini(&c);
    client_init(&c, &world, "/look"); /* and never of what cannot change */
    c.lookup.request_cache_control.refresh = true;
    client_run(&c);
    assert_int_equal(c.state, CACHE_HIT);
    client_fini(&c);
}

static int status_of(const char *path, uint32_t neg_ttl_s, enum cache_state *state)
{
    static const struct status_map map = {403, 404};
    struct client c;
    int status;

    lookup_page(&c, path);
    c.lookup.neg_ttl_s = neg_ttl_s;
    c.lookup.status_map = &map;
    c.lookup.status_maps = 1;
    client_run(&c);
    status = c.status;
    *state = c.state;
    client_fini(&c);
    world_quiet(&world, path);
    return status;
}

static void absence_is_remembered_for_a_while(void **state)
{
    enum cache_state s;

    (void)state;
    put(&world, "/absent?status=404");
    assert_int_equal(status_of("/absent", 60, &s), 404);
    assert_int_equal(s, CACHE_MISS);
    assert_int_equal(status_of("/absent", 60, &s), 404);
    assert_int_equal(s, CACHE_NEGATIVE);
    assert_int_equal(stat_of(&world, "/absent", "requests"), 1);
    put(&world, "/absent-2?status=404");
    assert_int_equal(status_of("/absent-2", 0, &s), 404);
    assert_int_equal(status_of("/absent-2", 0, &s), 404);
    assert_int_equal(stat_of(&world, "/absent-2", "requests"), 2);
    put(&world, "/mapped?status=403");
    assert_int_equal(status_of("/mapped", 60, &s), 404);
    put(&world, "/denied?status=401");
    assert_int_equal(status_of("/denied", 60, &s), 401);
    assert_int_equal(status_of("/denied", 60, &s), 401);
    assert_int_equal(stat_of(&world, "/denied", "requests"), 2);
}

static void what_is_gone_at_the_origin_is_gone_here(void **state)
{
    enum cache_state s;

    (void)state;
    put(&world, "/was?size=5000&fields=cache-control:max-age=0");
    page("/was", CACHE_MISS, 0);
    put(&world, "/was?status=404");
    assert_int_equal(status_of("/was", 60, &s), 404);
    put(&world, "/was?status=500");
    assert_int_equal(status_of("/was", 60, &s), 404);
}

static void principals_do_not_share(void **state)
{
    struct client c;

    (void)state;
    put(&world, "/gated?size=5000");
    client_init(&c, &world, "/gated");
    c.lookup.principal = SLICE("alice");
    c.lookup.authorization = SLICE("Bearer alice");
    client_run(&c);
    assert_got(&c, "/gated");
    client_fini(&c);
    world_quiet(&world, "/gated");
    client_init(&c, &world, "/gated");
    c.lookup.principal = SLICE("bob");
    client_run(&c);
    assert_int_equal(c.state, CACHE_MISS);
    client_fini(&c);
    assert_int_equal(stat_of(&world, "/gated", "requests"), 2);
    assert_int_equal(stat_of(&world, "/gated", "authorized"), 1);
}

/* Is it given while its origin is in trouble, after the origin has refused it? */
static int status_after_a_no(const char *path, const char *principal, int no)
{
    struct client c;
    int status = 0;

    put(&world, "%s?size=5000&fields=cache-control:max-age=0", path);
    for (int turn = 0; turn < 3; turn++) {
        lookup_page(&c, path);
        c.lookup.principal = slice_str(principal);
        c.lookup.sie_s = 3600;
        client_run(&c);
        status = c.status;
        client_fini(&c);
        world_quiet(&world, path);
        put(&world, "%s?status=%d", path, turn == 0 ? no : 500);
    }
    return status;
}

static void a_no_to_a_principal_is_the_end_of_a_yes(void **state)
{
    (void)state;
    assert_int_equal(status_after_a_no("/ended-403", "alice", 403), 502);
    assert_int_equal(status_after_a_no("/ended-401", "alice", 401), 502);
    assert_int_equal(status_after_a_no("/for-all-403", "", 403), 200); /* a firewall's, maybe */
}

static int any_row(void *arg, const struct object_info *o)
{
    (void)o;
    *(bool *)arg = true;
    return 1;
}

static void a_removed_page_is_not_renewed(void **state)
{
    struct client c;
    uint64_t removed;
    bool there = false;

    (void)state;
    put(&world, "/removed?size=5000&fields=cache-control:max-age=0&delay=0.2");
    page("/removed", CACHE_MISS, 0);
    lookup_page(&c, "/removed");
    client_go(&c, 0);
    while (!is_fetching(&world, "/removed")) {
        usleep(1000);
    }
    assert_int_equal(cache_remove(world.cache, SLICE("t"), SLICE("/removed"), true, &removed, NULL),
                     0);
    assert_int_equal(removed, 1);
    client_wait(&c);
    assert_int_equal(c.state, CACHE_REVALIDATED);
    client_fini(&c);
    world_quiet(&world, "/removed");
    assert_int_equal(cache_remove(world.cache, SLICE("t"), SLICE("/nothing"), true, &removed, NULL),
                     0);
    assert_int_equal(cache_list(world.cache, SLICE("t"), SLICE("/removed"), any_row, &there, NULL),
                     0);
    assert_false(there);
}

static int count_row(void *arg, const struct object_info *o)
{
    unsigned *n = arg;

    assert_int_equal(o->size_bytes, 77);
    (*n)++;
    return 0;
}

static void objects_are_listed_by_prefix(void **state)
{
    unsigned n = 0;
    struct err e;

    (void)state;
    put(&world, "/list/a?size=77");
    put(&world, "/list/b?size=77");
    get_and_check(&world, "/list/a", CACHE_MISS);
    get_and_check(&world, "/list/b", CACHE_MISS);
    world_quiet(&world, "/list/a");
    world_quiet(&world, "/list/b");
    assert_int_equal(cache_list(world.cache, SLICE("t"), SLICE("/list/"), count_row, &n, &e), 0);
    assert_int_equal(n, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fresh_pages_cost_nothing),
        cmocka_unit_test(stale_pages_are_asked_about_once),
        cmocka_unit_test(a_date_alone_validates),
        cmocka_unit_test(a_304_of_another_one_is_asked_again_plainly),
        cmocka_unit_test(a_new_page_takes_the_place_of_the_old),
        cmocka_unit_test(trouble_serves_the_old_one_and_says_so),
        cmocka_unit_test(must_revalidate_forbids_the_old_one),
        cmocka_unit_test(the_old_one_is_served_while_it_is_renewed),
        cmocka_unit_test(no_store_is_not_kept),
        cmocka_unit_test(a_client_may_ask_for_a_look),
        cmocka_unit_test(absence_is_remembered_for_a_while),
        cmocka_unit_test(what_is_gone_at_the_origin_is_gone_here),
        cmocka_unit_test(principals_do_not_share),
        cmocka_unit_test(a_no_to_a_principal_is_the_end_of_a_yes),
        cmocka_unit_test(a_removed_page_is_not_renewed),
        cmocka_unit_test(objects_are_listed_by_prefix),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
