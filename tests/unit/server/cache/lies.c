#include "tests/harness/cache_world.h"

#define MIB (1 << 20)

static const struct cache_settings settings = {.segment_bytes = 1 << 20,
                                               .fillers = 4,
                                               .parallel_bytes = 4 << 20,
                                               .jump_bytes = 256 << 10,
                                               .tries = 1,
                                               .document_bytes = 1 << 20};
static struct world world;

static int setup(void **state)
{
    static const char *hosts[] = {"127.0.0.2"};

    (void)state;
    world = (struct world){.quota_bytes = 64 << 20,
                           .origin_set = {.authorization = "Bearer mrd_secret",
                                          .hosts = hosts,
                                          .hosts_count = 1,
                                          .hosts_set = true,
                                          .stall_ms = 5000}};
    world_open(&world, &settings);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_close(&world);
    return 0;
}

/* Nothing of it may look whole, now or at the next want. */
static void assert_never_whole(const char *path)
{
    struct client c;

    client_init(&c, &world, path);
    client_run(&c);
    assert_true(c.status >= 500 || (c.status == 200 && c.rc != 0));
    client_fini(&c);
    world_quiet(&world, path);
    client_init(&c, &world, path);
    client_run(&c);
    assert_true(c.state != CACHE_HIT);
    assert_true(c.status >= 500 || (c.status == 200 && c.rc != 0));
    client_fini(&c);
}

static void a_short_body_is_never_complete(void **state)
{
    (void)state;
    put(&world, "/short?size=200000&short=1000&etag=weak");
    assert_never_whole("/short");
    put(&world, "/short-chunked?size=200000&short=1000&chunked=1&etag=none");
    assert_never_whole("/short-chunked");
    put(&world, "/short-head?size=200000&no_head=1");
    assert_never_whole("/short-head");
    put(&world, "/garbage?size=200000&early_garbage=1");
    assert_never_whole("/garbage");
}

static void a_wrong_content_range_is_refused(void **state)
{
    (void)state;
    put(&world, "/wrong-range?size=200000&wrong_range=7");
    assert_never_whole("/wrong-range");
    put(&world, "/wrong-total?size=200000&wrong_total=-5");
    assert_never_whole("/wrong-total");
}

static void generations_are_never_joined(void **state)
{
    static const char *const how[] = {"", "&etag=none", "&etag=none&ranges=0", "&etag=weak"};
    struct client c;
    char path[64];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(how); i++) {
        snprintf(path, sizeof path, "/changes-%zu", i);
        put(&world, "%s?size=%d&change_after=1&die_at=50&times=1%s", path, 2 * MIB, how[i]);
        client_init(&c, &world, path);
        c.lookup.class = LOOKUP_MUTABLE; /* asked for as a whole at first */
        client_run(&c);
        assert_int_equal(c.status, 200);
        assert_int_equal(c.rc, E_CHANGED);
        assert_true(c.got < 2 * MIB);
        client_fini(&c);
        get_and_check(&world, path, CACHE_MISS); /* the new one, whole */
    }
}

static void a_change_between_segments_is_seen(void **state)
{
    struct client c;

    (void)state;
    put(&world, "/segments?size=%d&change_after=3", 8 * MIB);
    client_init(&c, &world, "/segments");
    client_run(&c);
    assert_int_equal(c.rc, E_CHANGED);
    assert_true(c.got < 8 * MIB);
    client_fini(&c);
    get_and_check(&world, "/segments", CACHE_MISS);
}

static void wrong_bytes_never_reach_the_end(void **state)
{
    static const int sizes[] = {100, 65536, 300000, 5 * MIB};
    char path[64];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct client c;
        char sha[DIGEST_HEX + 1];
        snprintf(path, sizeof path, "/flipped-%d", sizes[i]);
        put(&world, "%s?size=%d&flip_at=50", path, sizes[i]);
        sha_of(&world, path, sha);
        client_init(&c, &world, path);
        c.lookup.digest_known = true;
        assert_true(digest_parse(slice_str(sha), &c.lookup.digest));
        client_run(&c);
        assert_int_equal(c.status, 200);
        assert_int_equal(c.rc, E_CORRUPT);
        assert_true(c.got <= (uint64_t)max_u64(sizes[i], 65536) - 65536);
        client_fini(&c);
        world_quiet(&world, path);
        client_init(&c, &world, path); /* nor is it there for others */
        client_run(&c);
        assert_true(c.state != CACHE_HIT);
        client_fini(&c);
    }
}

/* What an index says of the size, and the bound of index documents, end a fetch before anybody got
 * a byte of it, or at the latest when the bound is passed. */
static void a_length_that_cannot_be_is_refused_early(void **state)
{
    static const char *const how[] = {"", "&chunked=1&ranges=0", "&etag=none&ranges=0"};
    char path[64];

    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(how); i++) {
        struct client c;
        bool document = i >= ARRAY_LEN(how);
        bool announced = i % ARRAY_LEN(how) != 1;
        snprintf(path, sizeof path, "/length-%zu", i);
        put(&world, "%s?size=%d%s", path, 2 * MIB, how[i % ARRAY_LEN(how)]);
        client_init(&c, &world, path);
        c.lookup.size_bytes = document ? LENGTH_UNKNOWN : MIB;
        c.lookup.document = document;
        client_run(&c);
        if (announced) {
            assert_int_equal(c.status, 502);
            assert_int_equal(c.got, 0);
        } else {
            assert_int_equal(c.rc, document ? E_TOOBIG : E_CORRUPT);
            assert_true(c.got <= MIB);
        }
        client_fini(&c);
        world_quiet(&world, path);
    }
    put(&world, "/length-short?size=1000&chunked=1&ranges=0");
    {
        struct client c;
        client_init(&c, &world, "/length-short");
        c.lookup.size_bytes = 2000;
        client_run(&c);
        assert_int_equal(c.rc, E_CORRUPT);
        client_fini(&c);
    }
    put(&world, "/endless-index?size=1&endless=1&ranges=0");
    {
        struct client c;
        client_init(&c, &world, "/endless-index");
        c.lookup.document = true;
        client_run(&c);
        assert_int_equal(c.rc, E_TOOBIG);
        client_fini(&c);
    }
}

/* A repo's bound is held before the first byte where a length is announced, and at the latest when
 * it is passed. */
static void an_object_over_the_bound_is_refused(void **state)
{
    static const char *const how[] = {"", "&ranges=0", "&etag=none", "&chunked=1&ranges=0"};
    char path[64];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(how); i++) {
        struct client c;
        bool announced = i + 1 < ARRAY_LEN(how);
        snprintf(path, sizeof path, "/over-%zu", i);
        put(&world, "%s?size=%d%s", path, 2 * MIB, how[i]);
        for (int head = announced; head >= 0; head--) {
            client_init(&c, &world, path);
            c.lookup.max_bytes = 2 * MIB - 1;
            c.lookup.head_only = head;
            client_run(&c);
            if (announced) {
                assert_int_equal(c.status, 403);
                assert_non_null(strstr(c.why, "max_object"));
            } else {
                assert_int_equal(c.rc, E_REFUSED);
            }
            assert_true(c.got < 2 * MIB);
            client_fini(&c);
            world_quiet(&world, path);
        }
        snprintf(path, sizeof path, "/under-%zu", i);
        put(&world, "%s?size=%d%s", path, 2 * MIB, how[i]);
        client_init(&c, &world, path);
        c.lookup.max_bytes = 2 * MIB;
        client_run(&c);
        assert_got(&c, path);
        client_fini(&c);
    }
}

static void right_bytes_pass_the_digest(void **state)
{
    struct client c;
    char sha[DIGEST_HEX + 1];

    (void)state;
    put(&world, "/digest?size=%d&etag=none", 5 * MIB);
    sha_of(&world, "/digest", sha);
    client_init(&c, &world, "/digest");
    c.lookup.digest_known = true;
    assert_true(digest_parse(slice_str(sha), &c.lookup.digest));
    client_run(&c);
    assert_got(&c, "/digest");
    assert_non_null(strstr(c.etag, sha));
    client_fini(&c);
    assert_int_equal(stat_of(&world, "/digest", "bytes"), 5 * MIB);
}

static void promise(struct client *c, const char *path, const char *sha)
{
    client_init(c, &world, path);
    c->lookup.digest_known = sha != NULL;
    if (sha != NULL) {
        assert_true(digest_parse(slice_str(sha), &c->lookup.digest));
    }
}

/* One key, three who come at once: to one a wrong digest was promised, to one the right one, to one
 * nothing. */
static void a_promise_binds_those_it_was_made_to(void **state)
{
    char right[DIGEST_HEX + 1];
    char wrong[DIGEST_HEX + 1];
    char path[64];

    (void)state;
    for (unsigned first = 0; first < 3; first++) {
        const char *const sha[] = {wrong, right, NULL};
        struct client c[3];
        snprintf(path, sizeof path, "/promised-%u", first);
        put(&world, "%s?size=%d&rate=%d", path, 2 * MIB, 8 * MIB);
        sha_of(&world, path, right);
        memset(wrong, '0', DIGEST_HEX);
        wrong[DIGEST_HEX] = '\0';
        for (unsigned i = 0; i < 3; i++) {
            promise(&c[i], path, sha[(first + i) % 3]);
            client_go(&c[i], i);
            while (i == 0 && !is_fetching(&world, path)) {
                usleep(1000);
            }
        }
        for (unsigned i = 0; i < 3; i++) {
            client_wait(&c[i]);
            if (sha[(first + i) % 3] != wrong) {
                assert_got(&c[i], path);
            } else {
                assert_true(c[i].status == 502 || c[i].rc == E_CORRUPT);
            }
            client_fini(&c[i]);
        }
        world_quiet(&world, path);
        promise(&c[0], path, right);
        client_run(&c[0]);
        assert_int_equal(c[0].state, CACHE_HIT);
        client_fini(&c[0]);
    }
}

static void a_stall_is_left_and_resumed(void **state)
{
    (void)state;
    put(&world, "/stall?size=%d&stall_at=300000&times=1", MIB);
    get_and_check(&world, "/stall", CACHE_MISS);
}

static void a_trickle_is_given_up(void **state)
{
    (void)state;
    put(&world, "/trickle?size=100000&rate=20");
    assert_never_whole("/trickle");
}

static void errors_are_reported_plainly(void **state)
{
    static const struct {
        int origin, ours;
    } map[] = {{500, 502}, {502, 502}, {503, 503}, {504, 502}, {403, 403}, {401, 401}, {404, 404}};
    char path[64];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(map); i++) {
        struct client c;
        snprintf(path, sizeof path, "/status-%d", map[i].origin);
        put(&world, "%s?status=%d", path, map[i].origin);
        client_init(&c, &world, path);
        client_run(&c);
        assert_int_equal(c.status, map[i].ours);
        assert_true(c.status < 500 || c.why[0] != '\0');
        client_fini(&c);
    }
}

static void a_busy_origin_is_given_rest(void **state)
{
    (void)state;
    put(&world, "/busy?size=1000&status=429&times=1&fields=retry-after:1");
    get_and_check(&world, "/busy", CACHE_MISS);
    assert_int_equal(stat_of(&world, "/busy", "requests"), 2);
}

static void redirects_lead_only_where_they_may(void **state)
{
    struct client c;
    char port[16];

    (void)state;
    snprintf(port, sizeof port, "%u", world.origin_port);
    put(&world, "/to?size=70000");
    put(&world, "/inside?redirect=http://127.0.0.3:%s/to", port);
    put(&world, "/loop?redirect=/loop");
    put(&world, "/file?redirect=file:///etc/passwd");
    put(&world, "/user?redirect=http://a:b@127.0.0.1:%s/to", port);
    put(&world, "/same?redirect=to");
    assert_never_whole("/inside");
    assert_never_whole("/loop");
    assert_never_whole("/file");
    assert_never_whole("/user");
    assert_int_equal(stat_of(&world, "/to", "requests"), 0);
    client_init(&c, &world, "/same");
    client_run(&c);
    assert_got(&c, "/to");
    client_fini(&c);
    assert_int_equal(stat_of(&world, "/to", "authorized"), 1); /* same host: ours is sent */
}

static void a_redirect_is_followed_though_its_body_is_cut(void **state)
{
    struct client c;

    (void)state;
    put(&world, "/way?size=200000");
    put(&world, "/cut-way?redirect=/way&short=10");
    client_init(&c, &world, "/cut-way");
    client_run(&c);
    assert_got(&c, "/way");
    client_fini(&c);
    assert_int_equal(stat_of(&world, "/way", "requests"), 1);
}

static void a_token_stays_with_its_host(void **state)
{
    struct client c;

    (void)state;
    put(&world, "/target?size=70000");
    put(&world, "/away?redirect=http://127.0.0.2:%u/target", world.origin_port);
    client_init(&c, &world, "/away");
    client_run(&c);
    assert_got(&c, "/target");
    client_fini(&c);
    assert_int_equal(stat_of(&world, "/away", "authorized"), 1);
    assert_int_equal(stat_of(&world, "/target", "requests"), 1);
    assert_int_equal(stat_of(&world, "/target", "authorized"), 0);
}

static void an_endless_body_meets_a_bound(void **state)
{
    struct client c;

    (void)state;
    put(&world, "/small?size=1000");
    get_and_check(&world, "/small", CACHE_MISS);
    world_quiet(&world, "/small");
    put(&world, "/endless-part?size=1&endless=1");
    assert_never_whole("/endless-part");
    put(&world, "/endless?size=1&endless=1&ranges=0");
    client_init(&c, &world, "/endless");
    client_run(&c);
    assert_int_equal(c.rc, E_NOSPACE);
    client_fini(&c);
    client_init(&c, &world, "/small"); /* it may have had to make room, but is served */
    client_run(&c);
    assert_got(&c, "/small");
    client_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_body_is_never_complete),
        cmocka_unit_test(a_wrong_content_range_is_refused),
        cmocka_unit_test(generations_are_never_joined),
        cmocka_unit_test(a_change_between_segments_is_seen),
        cmocka_unit_test(wrong_bytes_never_reach_the_end),
        cmocka_unit_test(a_length_that_cannot_be_is_refused_early),
        cmocka_unit_test(an_object_over_the_bound_is_refused),
        cmocka_unit_test(right_bytes_pass_the_digest),
        cmocka_unit_test(a_promise_binds_those_it_was_made_to),
        cmocka_unit_test(a_stall_is_left_and_resumed),
        cmocka_unit_test(a_trickle_is_given_up),
        cmocka_unit_test(errors_are_reported_plainly),
        cmocka_unit_test(a_busy_origin_is_given_rest),
        cmocka_unit_test(redirects_lead_only_where_they_may),
        cmocka_unit_test(a_redirect_is_followed_though_its_body_is_cut),
        cmocka_unit_test(a_token_stays_with_its_host),
        cmocka_unit_test(an_endless_body_meets_a_bound),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
