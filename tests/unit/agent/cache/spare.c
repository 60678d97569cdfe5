#include "agent/cache/spare.h"

#include <sys/stat.h>
#include <sys/syscall.h>

#include "agent/cache/place.h"
#include "tests/harness/local_cache.h"

/* Two files in a folder and a link, laid out at <local cache>/<name>; its stamp. */
static uint64_t lay(struct world *w, const char *name, char path[PATH_MAX])
{
    char link[PATH_MAX];
    struct digest d[2];
    uint64_t stamp;

    snprintf(path, PATH_MAX, "%s/%s", w->dir, name);
    local_cache_put(w, SLICE("one"), &d[0]);
    local_cache_put(w, SLICE("two"), &d[1]);
    assert_int_equal(dir_make(path, 0755, NULL), 0);
    assert_int_equal(place_blob(w->local_cache, &d[0], path, SLICE("a/one"), false, NULL), 0);
    assert_int_equal(place_blob(w->local_cache, &d[1], path, SLICE("two"), false, NULL), 0);
    snprintf(link, sizeof link, "%s/a/link", path);
    assert_int_equal(symlink("../two", link), 0);
    assert_int_equal(spare_stamp(path, &stamp, NULL), 0);
    w->digest = d[0];
    return stamp;
}

static unsigned kept(const struct world *w)
{
    char command[PATH_MAX];
    unsigned n = 0;
    FILE *f;

    snprintf(command, sizeof command, "find %s/spare -mindepth 2 -maxdepth 2 2>/dev/null | wc -l",
             w->dir);
    f = popen(command, "r");
    assert_true(f != NULL && fscanf(f, "%u", &n) == 1);
    pclose(f);
    return n;
}

static void test_it_goes_from_one_to_the_next(void **state)
{
    struct world *w = *state;
    char first[PATH_MAX], second[PATH_MAX], file[PATH_MAX + 8];
    uint64_t stamp = lay(w, "first", first);
    uint64_t got;

    snprintf(second, sizeof second, "%s/second", w->dir);
    assert_false(spare_take(w->local_cache, &w->digest, second, &got));
    spare_give(w->local_cache, &w->digest, stamp, "7", first);
    assert_true(access(first, F_OK) == -1 && kept(w) == 1);
    assert_true(spare_take(w->local_cache, &w->digest, second, &got) && got == stamp);
    snprintf(file, sizeof file, "%s/a/one", second);
    assert_int_equal(access(file, F_OK), 0);
    assert_int_equal(kept(w), 0);
}

/* As a job can that runs as the node's user. */
static void test_what_was_touched_is_thrown_away(void **state)
{
    static const char *const how[] = {
        "touch x",        "rm two",           "mkdir a/x",
        "rm a/link",      "ln -sf /x a/link", "chmod u+w two; echo x >> two",
        "chmod 0 two",    "mv two three",     "cp two x; mv -f x two",
        "mv a b; mkdir a"};
    struct world *w = *state;
    char path[PATH_MAX], command[2 * PATH_MAX];
    uint64_t stamp, got;

    for (size_t i = 0; i < ARRAY_LEN(how); i++) {
        stamp = lay(w, "job", path);
        snprintf(command, sizeof command, "cd %s && (%s)", path, how[i]);
        assert_int_equal(system(command), 0);
        spare_give(w->local_cache, &w->digest, stamp, "7", path);
        assert_int_equal(kept(w), 1);
        assert_false(spare_take(w->local_cache, &w->digest, path, &got));
        assert_true(access(path, F_OK) == -1 && kept(w) == 0);
    }
}

static void test_nobody_gets_it_over_what_is_there(void **state)
{
    struct world *w = *state;
    char path[PATH_MAX], file[PATH_MAX + 8];
    uint64_t stamp = lay(w, "job", path);

    spare_give(w->local_cache, &w->digest, stamp, "7", path);
    assert_int_equal(mkdir(path, 0755), 0);
    snprintf(file, sizeof file, "%s/mine", path);
    assert_int_equal(mkdir(file, 0755), 0);
    assert_false(spare_take(w->local_cache, &w->digest, path, &stamp));
    assert_true(access(file, F_OK) == 0 && kept(w) == 1);
}

static void test_there_are_not_too_many(void **state)
{
    struct world *w = *state;
    char path[PATH_MAX], name[32];

    for (unsigned i = 0; i < SPARES_MAX + 2; i++) {
        uint64_t stamp;
        snprintf(name, sizeof name, "job%u", i);
        stamp = lay(w, name, path);
        spare_give(w->local_cache, &w->digest, stamp, name + 3, path);
        assert_int_equal(access(path, F_OK) == 0, i >= SPARES_MAX);
    }
    assert_int_equal(kept(w), SPARES_MAX);
}

static void test_sweep(void **state)
{
    struct world *w = *state;
    char path[PATH_MAX];

    spare_sweep(w->local_cache, UINT64_MAX); /* there never were any */
    spare_give(w->local_cache, &w->digest, lay(w, "job", path), "7", path);
    spare_sweep(w->local_cache, 1000);
    assert_int_equal(kept(w), 1);
    spare_sweep(w->local_cache, UINT64_MAX);
    snprintf(path, sizeof path, "%s/spare", w->dir);
    assert_int_equal(rmdir(path), 0);
}

/* --- taken while it is swept ------------------------------------------------------------------ */

static struct {
    struct world *world;
    char at[PATH_MAX];
    uint64_t stamp;
    bool took;
} taker; /* who comes between the sweeper's look at a folder and its first step */

int unlinkat(int dir, const char *name, int flags)
{
    struct world *w = taker.world;

    taker.world = NULL;
    if (w != NULL) {
        taker.took = spare_take(w->local_cache, &w->digest, taker.at, &taker.stamp);
    }
    return (int)syscall(SYS_unlinkat, dir, name, flags);
}

/* gc makes room just when a prolog takes a folder: what the job has got stays whole. */
static void test_what_was_taken_is_not_swept(void **state)
{
    struct world *w = *state;
    char path[PATH_MAX];
    uint64_t stamp = lay(w, "job", path);

    spare_give(w->local_cache, &w->digest, stamp, "7", path);
    snprintf(taker.at, sizeof taker.at, "%s/next", w->dir);
    taker.world = w;
    spare_sweep(w->local_cache, UINT64_MAX);
    taker.world = NULL;
    if (taker.took) {
        assert_int_equal(spare_stamp(taker.at, &stamp, NULL), 0);
        assert_true(stamp == taker.stamp);
    }
    assert_int_equal(kept(w), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_it_goes_from_one_to_the_next, local_cache_setup,
                                        local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_what_was_touched_is_thrown_away, local_cache_setup,
                                        local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_nobody_gets_it_over_what_is_there, local_cache_setup,
                                        local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_there_are_not_too_many, local_cache_setup,
                                        local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_sweep, local_cache_setup, local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_what_was_taken_is_not_swept, local_cache_setup,
                                        local_cache_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
