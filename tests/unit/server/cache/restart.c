/* restart.c - what a killed or stopped daemon had of a large object is not fetched again. */

#include <dirent.h>

#include "tests/harness/cache_world.h"
#include "server/cache/cache_priv.h"
#include "server/store/partial.h"

#define MIB ((uint64_t)1 << 20)

static const struct cache_settings settings = {.segment_bytes = 8 << 20,
                                               .parallel_bytes = 32 << 20};
static const char *self;

static int count_partial(void *arg, struct slice key, struct slice value)
{
    unsigned *n = arg;

    (void)key;
    (void)value;
    (*n)++;
    return 0;
}

static unsigned partial_rows(struct world *w)
{
    unsigned n = 0;

    assert_int_equal(
        store_scan(w->store, TABLE_PARTIAL, SLICE_NONE, SLICE_NONE, count_partial, &n, NULL), 0);
    return n;
}

/* The life that is killed: begins a fetch in the folder of its parent, says when a map was saved,
 * waits for the end. */
static int victim(const char *dir, unsigned port)
{
    struct world w = {.set = settings, .origin_port = port};
    struct client c;

    snprintf(w.dir, sizeof w.dir, "%s", dir);
    log_set_level(LOG_ERROR);
    world_start(&w);
    client_init(&c, &w, "/large");
    client_go(&c, 0);
    while (partial_rows(&w) == 0) {
        usleep(10000);
    }
    if (write(1, "saved\n", 6) != 6) {
        return 1;
    }
    for (;;) {
        pause();
    }
}

static void kill_a_life(struct world *w)
{
    char port[16];
    char line[16];
    int out[2];
    pid_t pid;

    snprintf(port, sizeof port, "%u", w->origin_port);
    assert_int_equal(pipe(out), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(out[1], 1);
        execl(self, self, "victim", w->dir, port, (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    assert_int_equal(read(out[0], line, sizeof line), 6);
    close(out[0]);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void a_killed_fetch_is_resumed(void **state)
{
    struct world w = {0};
    uint64_t before;
    uint64_t after;

    (void)state;
    world_open(&w, &settings);
    put(&w, "/large?size=%d&hold_at=%d", (int)(80 * MIB), (int)(40 * MIB));
    world_stop(&w);
    kill_a_life(&w);
    before = stat_of(&w, "/large", "bytes");
    assert_true(before > 8 * MIB);
    go_on(&w, "/large");
    world_start(&w);
    assert_int_equal(partial_rows(&w), 1);
    get_and_check(&w, "/large", CACHE_MISS);
    after = stat_of(&w, "/large", "bytes") - before;
    assert_true(after < 80 * MIB - 4 * MIB);
    world_quiet(&w, "/large");
    get_and_check(&w, "/large", CACHE_HIT);
    assert_int_equal(partial_rows(&w), 0);
    world_close(&w);
}

static uint64_t have_of(struct world *w, const char *key)
{
    struct fetch_info info[8];
    size_t n = cache_fetches(w->cache, info, ARRAY_LEN(info));

    for (size_t i = 0; i < n; i++) {
        if (strcmp(info[i].key, key) == 0) {
            return info[i].have_bytes;
        }
    }
    return 0;
}

static void a_stopped_fetch_is_resumed_or_begun_anew(void **state)
{
    struct world w = {0};
    struct client c;
    uint64_t before;

    (void)state;
    world_open(&w, &settings);
    for (int changed = 0; changed < 2; changed++) {
        put(&w, "/stopped?size=%d&hold_at=%d&seed=%d", (int)(80 * MIB), (int)(40 * MIB),
            5 + changed);
        client_init(&c, &w, "/stopped");
        client_go(&c, 0);
        while (have_of(&w, "/stopped") < 24 * MIB) {
            usleep(10000);
        }
        world_stop(&w);
        client_wait(&c);
        assert_true(c.rc != 0);
        client_fini(&c);
        before = stat_of(&w, "/stopped", "bytes");
        go_on(&w, "/stopped");
        world_start(&w);
        if (changed) { /* the origin has another one by now */
            put(&w, "/stopped?size=%d&seed=99", (int)(70 * MIB));
            before = 0;
        }
        get_and_check(&w, "/stopped", CACHE_MISS);
        if (!changed) {
            assert_true(stat_of(&w, "/stopped", "bytes") - before <= 80 * MIB - 24 * MIB);
        }
        world_quiet(&w, "/stopped");
        get_and_check(&w, "/stopped", CACHE_HIT);
        assert_int_equal(partial_rows(&w), 0);
        {
            uint64_t removed;
            assert_int_equal(
                cache_remove(w.cache, SLICE("t"), SLICE("/stopped"), true, &removed, NULL), 0);
        }
    }
    world_close(&w);
}

static void fail_large(struct world *w, const char *path)
{
    struct client c;

    client_init(&c, w, path);
    client_run(&c);
    assert_int_equal(c.status, 200);
    assert_int_equal(c.rc, E_NETWORK);
    client_fini(&c);
    world_quiet(w, path);
    assert_int_equal(partial_rows(w), 1);
}

static void what_the_origin_left_alone_is_resumed(void **state)
{
    static const struct cache_settings one_try = {
        .segment_bytes = 8 << 20, .parallel_bytes = 1 << 30, .tries = 1};
    struct world w = {0};
    struct client c;

    (void)state;
    world_open(&w, &one_try);
    put(&w, "/left?size=%d&wall_at=40000000", (int)(80 * MIB));
    fail_large(&w, "/left");
    /* An attempt that gets no head loses nothing. */
    usleep(2100 * 1000);
    put(&w, "/left?size=%d&status=500&times=1", (int)(80 * MIB));
    client_init(&c, &w, "/left");
    client_run(&c);
    assert_int_equal(c.status, 502);
    client_fini(&c);
    usleep(2100 * 1000);
    get_and_check(&w, "/left", CACHE_MISS);
    assert_true(stat_of(&w, "/left", "bytes") < 50 * MIB);
    world_quiet(&w, "/left");
    assert_int_equal(partial_rows(&w), 0);
    world_close(&w);
}

static unsigned names_in(struct world *w, const char *folder)
{
    char path[128];
    struct dirent *ent;
    unsigned n = 0;
    DIR *d;

    snprintf(path, sizeof path, "%s/%s", w->dir, folder);
    d = opendir(path);
    assert_non_null(d);
    while ((ent = readdir(d)) != NULL) {
        n += ent->d_name[0] != '.';
    }
    closedir(d);
    return n;
}

static void drop_parked(struct world *w, uint64_t now_unix_s, uint64_t max_bytes)
{
    partials_lose_old(w->store, now_unix_s, max_bytes);
    partials_drop_lost(w->store);
}

static void parked_fetches_go_when_nobody_comes_back(void **state)
{
    static const struct cache_settings one_try = {
        .segment_bytes = 8 << 20, .parallel_bytes = 1 << 30, .tries = 1};
    struct world w = {.quota_bytes = (uint64_t)4 << 30};
    uint64_t now = clock_unix_s();

    (void)state;
    world_open(&w, &one_try);
    put(&w, "/parked?size=%d&wall_at=30000000", (int)(80 * MIB));
    fail_large(&w, "/parked");
    world_stop(&w); /* a stop parks again, a start finds it */
    world_start(&w);
    drop_parked(&w, now + 6 * 86400, UINT64_MAX);
    assert_int_equal(partial_rows(&w), 1);
    drop_parked(&w, now + 8 * 86400, UINT64_MAX);
    assert_int_equal(partial_rows(&w), 0);
    assert_int_equal(names_in(&w, "partial"), 0);
    usleep(2100 * 1000);
    fail_large(&w, "/parked");
    drop_parked(&w, now, 10 * MIB); /* too much of it */
    assert_int_equal(partial_rows(&w), 0);
    assert_int_equal(names_in(&w, "partial"), 0);
    world_close(&w);
}

static void an_abandoned_fetch_is_parked_and_taken_up_again(void **state)
{
    static const struct cache_settings no_grace = {.segment_bytes = 8 << 20, .grace_ms = 1};
    struct world w = {0};
    struct client c;
    uint64_t before;

    (void)state;
    world_open(&w, &no_grace);
    put(&w, "/abandoned?size=%d&rate=12000000&etag=\"x\"", (int)(200 * MIB));
    client_init(&c, &w, "/abandoned");
    c.lookup.class = LOOKUP_MUTABLE;
    c.end = 4 * MIB;
    client_run(&c);
    assert_int_equal(c.rc, 0);
    client_fini(&c);
    while (partial_rows(&w) == 0) { /* until the tick has seen that nobody reads */
        usleep(1000);
    }
    before = stat_of(&w, "/abandoned", "bytes");
    put(&w, "/abandoned?size=%d&etag=\"x\"", (int)(200 * MIB));
    client_init(&c, &w, "/abandoned");
    c.lookup.class = LOOKUP_MUTABLE;
    client_run(&c);
    assert_got(&c, "/abandoned");
    client_fini(&c);
    assert_true(before > MIB);
    assert_true(stat_of(&w, "/abandoned", "bytes") < 200 * MIB - MIB);
    world_close(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_fetch_is_resumed),
        cmocka_unit_test(what_the_origin_left_alone_is_resumed),
        cmocka_unit_test(parked_fetches_go_when_nobody_comes_back),
        cmocka_unit_test(an_abandoned_fetch_is_parked_and_taken_up_again),
        cmocka_unit_test(a_stopped_fetch_is_resumed_or_begun_anew),
    };

    self = argv[0];
    if (argc == 4 && strcmp(argv[1], "victim") == 0) {
        return victim(argv[2], (unsigned)atoi(argv[3]));
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
