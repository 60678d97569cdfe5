/* restart.c - what a killed or stopped daemon had of a large object is not fetched again. */

#include "tests/harness/cache_world.h"

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

/* The life that is killed: begins a fill in the folder of its parent, says when a map was saved, waits for the end. */
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

static void a_killed_fill_is_resumed(void **state)
{
    struct world w = {0};
    uint64_t before;
    uint64_t after;

    (void)state;
    world_open(&w, &settings);
    put(&w, "/large?size=%d&rate=12000000", (int)(80 * MIB));
    world_stop(&w);
    kill_a_life(&w);
    before = stat_of(&w, "/large", "bytes");
    assert_true(before > 8 * MIB);
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
    struct fill_info info[8];
    size_t n = cache_fills(w->cache, info, ARRAY_LEN(info));

    for (size_t i = 0; i < n; i++) {
        if (strcmp(info[i].key, key) == 0) {
            return info[i].have_bytes;
        }
    }
    return 0;
}

static void a_stopped_fill_is_resumed_or_begun_anew(void **state)
{
    struct world w = {0};
    struct client c;
    uint64_t before;

    (void)state;
    world_open(&w, &settings);
    for (int changed = 0; changed < 2; changed++) {
        put(&w, "/stopped?size=%d&rate=20000000&seed=%d", (int)(80 * MIB), 5 + changed);
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
            assert_int_equal(cache_remove(w.cache, SLICE("t"), SLICE("/stopped"), &removed, NULL),
                             0);
        }
    }
    world_close(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_fill_is_resumed),
        cmocka_unit_test(a_stopped_fill_is_resumed_or_begun_anew),
    };

    self = argv[0];
    if (argc == 4 && strcmp(argv[1], "victim") == 0) {
        return victim(argv[2], (unsigned)atoi(argv[3]));
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
