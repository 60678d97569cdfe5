#include "tests/harness/cache_world.h"

#include <limits.h>
#include <stdatomic.h>

/* A reader of an index that says as much as a test wants, whatever its bytes are. */
static const struct cache_settings settings = {.tries = 1};
static struct world world;
static atomic_uint changes;
static struct {
    unsigned things; /* that it names */
    bool silent;     /* ... without a row */
    unsigned word;   /* in each row */
    size_t most;     /* bytes that its batch ever had */
    unsigned reported;
} script;

static void on_change(void *arg, struct slice repo, struct slice key)
{
    (void)arg;
    (void)repo;
    if (key.p == NULL) {
        changes++;
    }
}

static int setup(void **state)
{
    (void)state;
    world = (struct world){0};
    world_open(&world, &settings);
    cache_on_change(world.cache, on_change, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_close(&world);
    return 0;
}

static void *open_it(const struct lookup *w, struct slice url, uint64_t modified_unix_s,
                     uint64_t asked_unix_s)
{
    (void)w;
    (void)url;
    (void)modified_unix_s;
    (void)asked_unix_s;
    script.most = script.reported = 0;
    return &script;
}

static int feed(void *state, struct slice bytes, struct lookup_rows *rows, struct err *e)
{
    int rc = 0;

    (void)state;
    (void)bytes;
    for (unsigned i = 0; rc == 0 && i < script.things; i++) {
        char key[32], value[200];
        snprintf(key, sizeof key, "thing-%u", i);
        snprintf(value, sizeof value, "%0190u", script.word);
        if (!script.silent) {
            batch_put(rows->batch, TABLE_ORIGIN, slice_str(key), slice_str(value));
        }
        if (batch_bytes(rows->batch) > script.most) {
            script.most = batch_bytes(rows->batch);
        }
        rc = rows->reported(rows, e);
        script.reported += rc == 0;
    }
    return rc;
}

static int finish(void *state, struct lookup_rows *rows, struct err *e)
{
    (void)state;
    (void)rows;
    (void)e;
    return 0;
}

static void close_it(void *state)
{
    (void)state;
}

static int read_index(const char *path)
{
    static const struct lookup_reader reader = {"test", open_it, feed, finish, NULL, close_it};
    struct client c;
    int rc;

    put(&world, "%s?size=5000&seed=%u&fields=cache-control:max-age=0", path, script.word + 1);
    client_init(&c, &world, path);
    c.lookup.class = LOOKUP_MUTABLE;
    c.lookup.reader = &reader;
    client_run(&c);
    rc = c.status != 200 ? c.status : c.rc;
    client_fini(&c);
    world_quiet(&world, path);
    return rc;
}

static bool has_row(const char *key)
{
    struct buf v = BUF_INIT(1024);
    int rc = store_get(world.store, TABLE_ORIGIN, slice_str(key), &v, NULL);

    buf_free(&v);
    return rc == 0;
}

/* 5,000 bytes, one feed: 20 MB of rows are kept by and by, and what depends on them is told of
 * once. */
static void much_in_little(void **state)
{
    (void)state;
    changes = 0;
    script.things = 100000;
    script.word = 1;
    assert_int_equal(read_index("/much"), 0);
    assert_true(script.most < 2 << 20);
    assert_true(has_row("thing-0") && has_row("thing-99999"));
    assert_int_equal(changes, 1);
}

static void only_what_changed_is_reported(void **state)
{
    (void)state;
    script.things = 10;
    script.word = 2;
    assert_int_equal(read_index("/again"), 0);
    changes = 0;
    script.word = 2;
    assert_int_equal(read_index("/again-2"), 0); /* another index that says the same */
    assert_int_equal(script.reported, 10);
    assert_int_equal(changes, 0);
    script.word = 3;
    assert_int_equal(read_index("/again"), 0);
    assert_int_equal(changes, 1);
}

static void no_index_names_so_many(void **state)
{
    (void)state;
    changes = 0;
    script.things = UINT_MAX;
    script.silent = true;
    assert_int_not_equal(read_index("/many"), 0);
    assert_int_equal(script.reported, 4 << 20);
    assert_int_equal(changes, 0);
    script.silent = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(much_in_little),
        cmocka_unit_test(only_what_changed_is_reported),
        cmocka_unit_test(no_index_names_so_many),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
