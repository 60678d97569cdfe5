#include "tests/harness/cache_world.h"

static const struct cache_settings settings = {.segment_bytes = 1 << 20,
                                               .fillers = 4,
                                               .parallel_bytes = 4 << 20,
                                               .jump_bytes = 256 << 10,
                                               .tries = 4};
static struct world world;

static int setup(void **state)
{
    (void)state;
    world_open(&world, &settings);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_close(&world);
    return 0;
}

static void assert_got(struct client *c, const char *path)
{
    char sha[DIGEST_HEX + 1];

    sha_of(c->w, path, sha);
    assert_int_equal(c->status, 200);
    assert_int_equal(c->rc, 0);
    assert_string_equal(c->sha256, sha);
}

static void get_and_check(const char *path, enum cache_state state)
{
    struct client c;

    client_init(&c, &world, path);
    client_run(&c);
    assert_got(&c, path);
    assert_int_equal(c.state, state);
    client_fini(&c);
}

static void a_cold_get_fills_and_a_second_hits(void **state)
{
    static const unsigned sizes[] = {0,     1,       1000,          32768,   32769,
                                     65536, 1 << 20, (1 << 20) + 1, 3000000, 9000000};
    char path[64];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        snprintf(path, sizeof path, "/plain-%u", sizes[i]);
        put(&world, "%s?size=%u", path, sizes[i]);
        get_and_check(path, CACHE_MISS);
        world_quiet(&world);
        get_and_check(path, CACHE_HIT);
        assert_int_equal(stat_of(&world, path, "bytes"), sizes[i]);
    }
}

static void a_hundred_clients_cost_one_object(void **state)
{
    static struct client c[100];
    struct client again;

    (void)state;
    put(&world, "/herd?size=8388608&rate=40000000");
    for (unsigned i = 0; i < 100; i++) {
        client_init(&c[i], &world, "/herd");
        client_go(&c[i], i);
    }
    for (unsigned i = 0; i < 100; i++) {
        client_wait(&c[i]);
        assert_got(&c[i], "/herd");
        assert_string_equal(c[i].etag, c[0].etag);
        client_fini(&c[i]);
    }
    assert_int_equal(stat_of(&world, "/herd", "bytes"), 8388608);
    world_quiet(&world);
    client_init(&again, &world, "/herd");
    client_run(&again);
    assert_int_equal(again.state, CACHE_HIT);
    assert_string_equal(again.etag, c[0].etag);
    client_fini(&again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cold_get_fills_and_a_second_hits),
        cmocka_unit_test(a_hundred_clients_cost_one_object),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
