#include "tests/harness/cache_world.h"
#include "server/cache/cache_priv.h"
#include "server/store/batch.h"

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

static void a_cold_get_fetches_and_a_second_hits(void **state)
{
    static const unsigned sizes[] = {0,     1,       1000,          32768,   32769,
                                     65536, 1 << 20, (1 << 20) + 1, 3000000, 9000000};
    char path[64];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        snprintf(path, sizeof path, "/plain-%u", sizes[i]);
        put(&world, "%s?size=%u", path, sizes[i]);
        get_and_check(&world, path, CACHE_MISS);
        world_quiet(&world, path);
        get_and_check(&world, path, CACHE_HIT);
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
    world_quiet(&world, "/herd");
    client_init(&again, &world, "/herd");
    client_run(&again);
    assert_int_equal(again.state, CACHE_HIT);
    assert_string_equal(again.etag, c[0].etag);
    client_fini(&again);
}

#define MIB (1 << 20)

static void read_range(struct client *c, const char *path, uint64_t first, uint64_t end,
                       bool mutable)
{
    client_init(c, &world, path);
    c->first = c->lookup.hint_first = first;
    c->end = c->lookup.hint_end = end;
    c->lookup.class = mutable ? LOOKUP_MUTABLE : LOOKUP_IMMUTABLE;
}

static void assert_range(struct client *c, const char *path)
{
    char sha[DIGEST_HEX + 1];

    sha_of_span(&world, path, c->first, c->end, sha);
    assert_int_equal(c->rc, 0);
    assert_int_equal(c->got, c->end - c->first);
    assert_string_equal(c->sha256, sha);
}

static void a_cold_range_is_one_request_for_that_region(void **state)
{
    struct client c[8];

    (void)state;
    put(&world, "/range?size=%d", 100 * MIB);
    for (unsigned i = 0; i < 8; i++) {
        read_range(&c[i], "/range", 40 * MIB + 1000, 41 * MIB, true);
        client_go(&c[i], i);
    }
    for (unsigned i = 0; i < 8; i++) {
        client_wait(&c[i]);
        assert_range(&c[i], "/range");
        assert_int_equal(c[i].total, 100 * MIB);
        client_fini(&c[i]);
    }
    assert_int_equal(stat_of(&world, "/range", "requests"), 1);
    assert_int_equal(stat_of(&world, "/range", "bytes"), MIB);
}

static void far_ranges_cost_what_they_ask(void **state)
{
    struct client c[8];
    const uint64_t ask = 1000000;

    (void)state;
    put(&world, "/far?size=%d", 200 * MIB);
    for (unsigned i = 0; i < ARRAY_LEN(c); i++) {
        uint64_t first = (uint64_t)(i * 5 % 8) * 25 * MIB + 12345 * i;
        read_range(&c[i], "/far", first, first + ask, true);
        client_go(&c[i], i);
    }
    for (unsigned i = 0; i < ARRAY_LEN(c); i++) {
        client_wait(&c[i]);
        assert_range(&c[i], "/far");
        client_fini(&c[i]);
    }
    /* Blocks of 64 KiB are the only waste. */
    assert_in_range(stat_of(&world, "/far", "bytes"), ARRAY_LEN(c) * ask,
                    ARRAY_LEN(c) * (ask + 2 * 65536));
}

static void a_reader_behind_a_range_completes_the_object(void **state)
{
    struct client c;

    (void)state;
    put(&world, "/range-then-all?size=%d", 6 * MIB);
    read_range(&c, "/range-then-all", 5 * MIB, 5 * MIB + 10, false);
    client_run(&c);
    assert_range(&c, "/range-then-all");
    client_fini(&c);
    world_quiet(&world, "/range-then-all");
    assert_in_range(stat_of(&world, "/range-then-all", "bytes"), 1, 2 * 65536);
    get_and_check(&world, "/range-then-all", CACHE_COLLAPSED);
    assert_int_equal(stat_of(&world, "/range-then-all", "bytes"), 6 * MIB);
}

static void many_ranges_share_what_is_fetched(void **state)
{
    static struct client c[60];
    unsigned seed = 7;

    (void)state;
    put(&world, "/ranges?size=%d&rate=20000000", 8 * MIB);
    for (unsigned i = 0; i < ARRAY_LEN(c); i++) {
        uint64_t first;
        seed = seed * 1103515245u + 12345u;
        first = (seed >> 4) % (8 * MIB - 200000);
        read_range(&c[i], "/ranges", first, first + 1 + (seed >> 8) % 199999, false);
        client_go(&c[i], i);
    }
    for (unsigned i = 0; i < ARRAY_LEN(c); i++) {
        client_wait(&c[i]);
        assert_range(&c[i], "/ranges");
        client_fini(&c[i]);
    }
    world_quiet(&world, "/ranges");
    get_and_check(&world, "/ranges", CACHE_COLLAPSED);
    /* A segment that is cut short for a reader in front of it has some bytes on the wire. */
    assert_in_range(stat_of(&world, "/ranges", "bytes"), 8 * MIB, 11 * MIB);
}

static void a_large_object_comes_in_parallel_segments(void **state)
{
    (void)state;
    put(&world, "/large?size=%d&rate=30000000", 20 * MIB + 77);
    get_and_check(&world, "/large", CACHE_MISS);
    assert_int_equal(stat_of(&world, "/large", "bytes"), 20 * MIB + 77);
    /* 21 of a segment's length, but that the first ones are shorter: they grow with what is
     * there. */
    assert_in_range(stat_of(&world, "/large", "ranged"), 21, 26);
}

static void a_broken_connection_is_resumed(void **state)
{
    (void)state;
    put(&world, "/dies?size=%d&die_at=60&times=3", 3 * MIB);
    get_and_check(&world, "/dies", CACHE_MISS);
    assert_in_range(stat_of(&world, "/dies", "bytes"), 3 * MIB, 3 * MIB + 3 * 65536);
}

/* --- what happens while no write gets through --- */

enum { DISK_THREADS = 4 }; /* as in cache_world.h */

struct plug { /* in all threads of the disk pool */
    struct job job[DISK_THREADS];
    struct lock lock;
    struct cond cond;
    unsigned in, out;
    bool pulled;
};
static struct plug plug;

static void hold_thread(struct job *j)
{
    (void)j;
    lock_take(&plug.lock);
    plug.in++;
    cond_broadcast(&plug.cond);
    while (!plug.pulled) {
        cond_wait(&plug.cond, &plug.lock);
    }
    plug.out++;
    cond_broadcast(&plug.cond);
    lock_drop(&plug.lock);
}

static void plug_disk(void)
{
    plug = (struct plug){0};
    lock_init(&plug.lock, LOCK_LEAF);
    cond_init(&plug.cond);
    for (unsigned i = 0; i < DISK_THREADS; i++) {
        plug.job[i].work = hold_thread;
        pool_submit(world.disk, &plug.job[i], CLIENT_PROGRAM);
    }
    lock_take(&plug.lock);
    while (plug.in < DISK_THREADS) {
        cond_wait(&plug.cond, &plug.lock);
    }
    lock_drop(&plug.lock);
}

static void unplug_disk(void)
{
    lock_take(&plug.lock);
    plug.pulled = true;
    cond_broadcast(&plug.cond);
    while (plug.out < DISK_THREADS) {
        cond_wait(&plug.cond, &plug.lock);
    }
    lock_drop(&plug.lock);
}

static void keep_answer(void *arg, struct answer *a)
{
    struct client *c = arg;

    lock_take(&c->lock);
    c->answer = a;
    cond_broadcast(&c->cond);
    lock_drop(&c->lock);
}

static void ask_alone(struct message *l)
{
    struct client *c = CONTAINER_OF(l, struct client, message);

    cache_lookup(world.cache, c->loop, &c->lookup, keep_answer, c);
}

static void begin_to_read(struct message *l)
{
    struct client *c = CONTAINER_OF(l, struct client, message);

    client_answered(c, c->answer);
}

/* A reader jumps into what has come but is not written; then the connection breaks. */
static void a_segment_that_was_taken_over_is_not_asked_for_again(void **state)
{
    struct client whole;
    struct client late;

    (void)state;
    put(&world, "/taken?size=%d&rate=1500000&wall_at=900000&times=1", 3 * MIB);
    client_init(&whole, &world, "/taken");
    whole.lookup.class = LOOKUP_MUTABLE; /* one stream */
    client_go(&whole, 0);
    while (!is_fetching(&world, "/taken")) {
        usleep(1000);
    }
    read_range(&late, "/taken", 700000, 710000, true);
    late.hasher = hasher_new();
    late.loop = loops_at(world.loops, 1);
    late.message.deliver = ask_alone;
    message_queue_post(late.loop->mail, &late.message);
    lock_take(&late.lock);
    while (late.answer == NULL) {
        cond_wait(&late.cond, &late.lock);
    }
    lock_drop(&late.lock);
    plug_disk();
    while (stat_of(&world, "/taken", "lied") == 0) {
        usleep(1000);
    }
    late.message.deliver = begin_to_read;
    message_queue_post(late.loop->mail, &late.message);
    for (int i = 0; i < 2000 && stat_of(&world, "/taken", "requests") < 2; i++) {
        usleep(1000);
    }
    unplug_disk();
    client_wait(&late);
    assert_range(&late, "/taken");
    client_fini(&late);
    client_wait(&whole);
    assert_got(&whole, "/taken");
    client_fini(&whole);
}

/* --- in whose turn it is looked for --- */

struct stopper { /* a job that holds its thread until it is released */
    struct job job;
    bool in, released;
};
static struct stopper stoppers[DISK_THREADS + 1];

static void pass_stopper(struct job *j)
{
    struct stopper *g = CONTAINER_OF(j, struct stopper, job);

    lock_take(&plug.lock);
    g->in = true;
    cond_broadcast(&plug.cond);
    while (!g->released) {
        cond_wait(&plug.cond, &plug.lock);
    }
    plug.out++;
    cond_broadcast(&plug.cond);
    lock_drop(&plug.lock);
}

static void shut(struct stopper *g)
{
    *g = (struct stopper){.job.work = pass_stopper};
    pool_submit(world.disk, &g->job, CLIENT_PROGRAM);
}

static void await_in(const struct stopper *g)
{
    lock_take(&plug.lock);
    while (!g->in) {
        cond_wait(&plug.cond, &plug.lock);
    }
    lock_drop(&plug.lock);
}

static void release(struct stopper *g)
{
    lock_take(&plug.lock);
    g->released = true;
    cond_broadcast(&plug.cond);
    lock_drop(&plug.lock);
}

/* The cache looks at the row twice for a cold GET: for the request, and for the key. */
static void each_look_at_a_row_is_in_its_client_s_turn(void **state)
{
    enum { CLIENT = 7 };
    struct client c;

    (void)state;
    put(&world, "/turn?size=1000");
    plug = (struct plug){0};
    lock_init(&plug.lock, LOCK_LEAF);
    cond_init(&plug.cond);
    for (unsigned i = 0; i < DISK_THREADS; i++) {
        shut(&stoppers[i]);
    }
    for (unsigned i = 0; i < DISK_THREADS; i++) {
        await_in(&stoppers[i]);
    }
    client_init(&c, &world, "/turn");
    c.lookup.client = CLIENT;
    client_go(&c, 0);
    while (pool_waiting_of(world.disk, CLIENT) != 1) {
        usleep(1000);
    }
    shut(&stoppers[DISK_THREADS]); /* behind the first look */
    release(&stoppers[0]);
    await_in(&stoppers[DISK_THREADS]);
    while (pool_waiting(world.disk) != 1) {
        usleep(1000);
    }
    assert_int_equal(pool_waiting_of(world.disk, CLIENT), 1);
    for (unsigned i = 1; i <= DISK_THREADS; i++) {
        release(&stoppers[i]);
    }
    client_wait(&c);
    assert_got(&c, "/turn");
    client_fini(&c);
    lock_take(&plug.lock);
    while (plug.out <= DISK_THREADS) {
        cond_wait(&plug.cond, &plug.lock);
    }
    lock_drop(&plug.lock);
}

static void without_a_strong_validator_it_is_compared(void **state)
{
    static const char *const how[] = {"etag=weak", "etag=none", "etag=none&ranges=0", "chunked=1",
                                      "etag=none&chunked=1"};
    char path[64];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(how); i++) {
        snprintf(path, sizeof path, "/again-%zu", i);
        put(&world, "%s?size=%d&die_at=50&times=1&%s", path, 2 * MIB, how[i]);
        get_and_check(&world, path, CACHE_MISS);
        world_quiet(&world, path);
        get_and_check(&world, path, CACHE_HIT);
    }
}

static void ranges_that_are_not_given_become_a_stream(void **state)
{
    struct client c;

    (void)state;
    put(&world, "/stream?size=%d&ignore_range=1", 3 * MIB);
    read_range(&c, "/stream", 2 * MIB, 2 * MIB + 5000, false);
    client_run(&c);
    assert_range(&c, "/stream");
    client_fini(&c);
    world_quiet(&world, "/stream");
    get_and_check(&world, "/stream", CACHE_HIT);
    assert_int_equal(stat_of(&world, "/stream", "requests"), 1);
}

static void chunked_and_coded_bodies_are_kept(void **state)
{
    (void)state;
    put(&world, "/chunked?size=300000&chunked=1");
    get_and_check(&world, "/chunked", CACHE_MISS);
    put(&world, "/coded?size=5000000&fields=content-encoding:gzip");
    get_and_check(&world, "/coded", CACHE_MISS);
    world_quiet(&world, "/chunked");
    world_quiet(&world, "/coded");
    get_and_check(&world, "/chunked", CACHE_HIT);
    get_and_check(&world, "/coded", CACHE_HIT);
}

static void a_body_without_an_end_mark_is_not_kept(void **state)
{
    (void)state;
    put(&world, "/unframed?size=300000&unframed=1");
    get_and_check(&world, "/unframed", CACHE_MISS);
    world_quiet(&world, "/unframed");
    get_and_check(&world, "/unframed", CACHE_MISS);
}

static void the_first_byte_does_not_wait_for_the_last(void **state)
{
    struct client c;

    (void)state;
    put(&world, "/slow?size=2000000&hold_at=1000000");
    client_init(&c, &world, "/slow");
    client_go(&c, 0);
    client_has(&c, 1000000);
    assert_false(c.done);
    go_on(&world, "/slow");
    client_wait(&c);
    assert_got(&c, "/slow");
    client_fini(&c);
}

static void a_head_costs_a_head(void **state)
{
    struct client c;

    (void)state;
    put(&world, "/head?size=4000000");
    for (int i = 0; i < 3; i++) {
        client_init(&c, &world, "/head");
        c.lookup.head_only = true;
        client_run(&c);
        assert_int_equal(c.status, 200);
        assert_int_equal(c.total, 4000000);
        assert_string_equal(c.etag, "\"o-1-4000000\"");
        client_fini(&c);
    }
    assert_int_equal(stat_of(&world, "/head", "requests"), 1);
    assert_int_equal(stat_of(&world, "/head", "heads"), 1);
    get_and_check(&world, "/head", CACHE_MISS);
    assert_int_equal(stat_of(&world, "/head", "bytes"), 4000000);
}

static void removed_objects_are_fetched_again(void **state)
{
    uint64_t removed;
    struct err e;

    (void)state;
    put(&world, "/gone/a?size=1000");
    get_and_check(&world, "/gone/a", CACHE_MISS);
    world_quiet(&world, "/gone/a");
    assert_int_equal(cache_remove(world.cache, SLICE("t"), SLICE("/gone/"), true, &removed, &e), 0);
    assert_int_equal(removed, 1);
    get_and_check(&world, "/gone/a", CACHE_MISS);
}

/* --- a removal while a fetch is being committed --- */

struct gate { /* holds the commit thread */
    struct lock lock;
    struct cond cond;
    bool held, open, over;
    struct commit_wait wait;
};

static int hold(struct store *s, void *arg, struct err *e)
{
    struct gate *g = arg;

    (void)s;
    (void)e;
    lock_take(&g->lock);
    g->held = true;
    cond_broadcast(&g->cond);
    while (!g->open) {
        cond_wait(&g->cond, &g->lock);
    }
    lock_drop(&g->lock);
    return 0;
}

static void let_go(struct commit_wait *wait, int rc, const struct err *e)
{
    struct gate *g = CONTAINER_OF(wait, struct gate, wait);

    (void)e;
    assert_int_equal(rc, 0);
    lock_take(&g->lock);
    g->over = true;
    cond_broadcast(&g->cond);
    lock_drop(&g->lock);
}

static void gate_await(struct gate *g, const bool *what)
{
    lock_take(&g->lock);
    while (!*what) {
        cond_wait(&g->cond, &g->lock);
    }
    lock_drop(&g->lock);
}

static void gate_close(struct gate *g)
{
    struct batch *b = batch_new();

    lock_init(&g->lock, LOCK_LEAF);
    cond_init(&g->cond);
    batch_check(b, hold, g);
    g->wait.done = let_go;
    g->wait.reply = loops_at(world.loops, 0)->mail;
    store_commit_async(world.store, &b, COMMIT_LAZY, &g->wait);
    gate_await(g, &g->held);
}

static void gate_open(struct gate *g)
{
    lock_take(&g->lock);
    g->open = true;
    cond_broadcast(&g->cond);
    lock_drop(&g->lock);
    gate_await(g, &g->over);
    cond_fini(&g->cond);
    lock_fini(&g->lock);
}

static void await_blob(const char *sha)
{
    char path[200];

    snprintf(path, sizeof path, "%s/blobs/%.2s/%.2s/%s", world.dir, sha, sha + 2, sha);
    while (access(path, F_OK) != 0) {
        usleep(1000);
    }
}

static void *remove_racing(void *arg)
{
    uint64_t removed;

    assert_int_equal(
        cache_remove(world.cache, SLICE("t"), SLICE("/racing"), true, &removed, (struct err *)arg),
        0);
    return NULL;
}

static void a_removal_outlives_a_fetch_that_is_being_committed(void **state)
{
    struct gate g = {0};
    struct client c;
    pthread_t remover;
    struct err e;

    (void)state;
    put(&world, "/racing?size=100000");
    gate_close(&g);
    client_init(&c, &world, "/racing");
    client_run(&c);
    assert_got(&c, "/racing");
    await_blob(c.sha256);
    usleep(20000); /* the fetch's rows wait for the commit thread by now */
    client_fini(&c);
    assert_int_equal(pthread_create(&remover, NULL, remove_racing, &e), 0);
    usleep(20000);
    gate_open(&g);
    pthread_join(remover, NULL);
    world_quiet(&world, "/racing");
    get_and_check(&world, "/racing", CACHE_MISS);
}

static void a_removal_takes_what_was_parked(void **state)
{
    struct cache_settings one_try = settings;
    struct world w = {0};
    struct client c;
    uint64_t removed;

    (void)state;
    one_try.tries = 1;
    world_open(&w, &one_try);
    put(&w, "/parked?size=%d&wall_at=30000000", 80 * MIB);
    client_init(&c, &w, "/parked");
    client_run(&c);
    assert_int_equal(c.rc, E_NETWORK);
    client_fini(&c);
    world_quiet(&w, "/parked");
    assert_int_equal(cache_remove(w.cache, SLICE("t"), SLICE("/parked"), true, &removed, NULL), 0);
    world_stop(&w); /* the trouble of its origin is forgotten */
    world_start(&w);
    put(&w, "/parked?size=%d", 80 * MIB);
    get_and_check(&w, "/parked", CACHE_MISS);
    assert_int_equal(stat_of(&w, "/parked", "bytes"), 80 * MIB);
    world_close(&w);
}

static void a_generation_keeps_its_tag(void **state)
{
    struct client c[3];

    (void)state;
    put(&world, "/tag?size=1000&etag=none");
    for (int i = 0; i < 3; i++) {
        client_init(&c[i], &world, "/tag");
        client_run(&c[i]);
        world_quiet(&world, "/tag");
        assert_true(strncmp(c[i].etag, "\"g-", 3) == 0);
        assert_string_equal(c[i].etag, c[0].etag);
        client_fini(&c[i]);
        if (i == 1) {
            world_stop(&world);
            world_start(&world);
        }
    }
}

/* At each write of each fetch it would cost a walk over all fetches, under the lock that all of
 * them need. */
static void where_there_is_room_nobody_looks_at_all_fetches(void **state)
{
    struct client c[4];
    char path[4][32];

    (void)state;
    for (unsigned i = 0; i < ARRAY_LEN(c); i++) {
        snprintf(path[i], sizeof path[i], "/room-%u", i);
        put(&world, "%s?size=%d", path[i], 5 * MIB);
        client_init(&c[i], &world, path[i]);
        c[i].lookup.client = 7;
        client_go(&c[i], i);
    }
    for (unsigned i = 0; i < ARRAY_LEN(c); i++) {
        client_wait(&c[i]);
        assert_got(&c[i], path[i]);
        client_fini(&c[i]);
        world_quiet(&world, path[i]);
    }
    assert_int_equal(atomic_load(&world.cache->count.share_looks), 0);
    assert_int_equal(atomic_load(&world.cache->announced_bytes), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_there_is_room_nobody_looks_at_all_fetches),
        cmocka_unit_test(a_cold_get_fetches_and_a_second_hits),
        cmocka_unit_test(a_hundred_clients_cost_one_object),
        cmocka_unit_test(a_cold_range_is_one_request_for_that_region),
        cmocka_unit_test(far_ranges_cost_what_they_ask),
        cmocka_unit_test(a_reader_behind_a_range_completes_the_object),
        cmocka_unit_test(many_ranges_share_what_is_fetched),
        cmocka_unit_test(a_large_object_comes_in_parallel_segments),
        cmocka_unit_test(a_broken_connection_is_resumed),
        cmocka_unit_test(a_segment_that_was_taken_over_is_not_asked_for_again),
        cmocka_unit_test(each_look_at_a_row_is_in_its_client_s_turn),
        cmocka_unit_test(without_a_strong_validator_it_is_compared),
        cmocka_unit_test(ranges_that_are_not_given_become_a_stream),
        cmocka_unit_test(chunked_and_coded_bodies_are_kept),
        cmocka_unit_test(a_body_without_an_end_mark_is_not_kept),
        cmocka_unit_test(the_first_byte_does_not_wait_for_the_last),
        cmocka_unit_test(a_head_costs_a_head),
        cmocka_unit_test(removed_objects_are_fetched_again),
        cmocka_unit_test(a_removal_outlives_a_fetch_that_is_being_committed),
        cmocka_unit_test(a_removal_takes_what_was_parked),
        cmocka_unit_test(a_generation_keeps_its_tag),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
