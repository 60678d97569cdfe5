#include "agent/cache/pins.h"

#include <sys/stat.h>

#include "agent/cache/place.h"
#include "agent/cache/spare.h"
#include "tests/harness/local_cache.h"

static bool nobody(void *arg, const char *job)
{
    return arg != NULL && strcmp(arg, job) == 0;
}

static void touch(const struct world *w, const char *name)
{
    char path[PATH_MAX];
    int fd;

    snprintf(path, sizeof path, "%s/jobs/%s", w->dir, name);
    fd = open(path, O_WRONLY | O_CREAT, 0644);
    assert_true(fd != -1);
    close(fd);
}

static bool there(const struct world *w, const char *name)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/jobs/%s", w->dir, name);
    return access(path, F_OK) == 0;
}

static void test_pins(void **state)
{
    struct world *w = *state;
    struct digest *all;
    struct digest d[2];
    size_t n;

    assert_int_equal(pins_all(w->local_cache, &all, &n, NULL), 0);
    assert_int_equal(n, 0);
    free(all);
    local_cache_put(w, SLICE("one"), &d[0]);
    local_cache_put(w, SLICE("two"), &d[1]);
    assert_int_equal(
        pins_write(w->local_cache, "7", &(struct job_pins){.file = d, .nfiles = 2}, NULL), 0);
    assert_int_equal(
        pins_write(w->local_cache, "8", &(struct job_pins){.file = d, .nfiles = 1}, NULL), 0);
    assert_int_equal(pins_all(w->local_cache, &all, &n, NULL), 0);
    assert_int_equal(n, 3);
    free(all);
    touch(w, "9.json"); /* of no job that we know how to read */
    touch(w, "x.json");
    assert_int_equal(pins_all(w->local_cache, &all, &n, NULL), 0);
    assert_int_equal(n, 3);
    free(all);
    assert_int_equal(pins_drop(w->local_cache, "7", NULL), 0);
    assert_int_equal(pins_drop(w->local_cache, "7", NULL), 0);
    assert_int_equal(pins_all(w->local_cache, &all, &n, NULL), 0);
    assert_true(n == 1 && digest_eq(&all[0], &d[0]));
    free(all);
    assert_int_equal(
        pins_write(w->local_cache, "../7", &(struct job_pins){.file = d, .nfiles = 1}, NULL),
        E_INVALID);
    assert_int_equal(pins_drop(w->local_cache, "", NULL), E_INVALID);
}

static void test_gc_keeps_what_is_pinned(void **state)
{
    struct world *w = *state;
    struct local_cache_gc_params want = {
        .keep_bytes = 0, .keep_age_s = UINT64_MAX, .now_unix_s = 1u << 31};
    struct local_cache_totals gone;
    struct digest d[2];
    uint64_t n;

    local_cache_put(w, SLICE("one"), &d[0]);
    local_cache_put(w, SLICE("two"), &d[1]);
    assert_int_equal(
        pins_write(w->local_cache, "7", &(struct job_pins){.file = d, .nfiles = 1}, NULL), 0);
    assert_int_equal(local_cache_gc(w->local_cache, &want, &gone, NULL), 0);
    assert_int_equal(gone.blobs, 1);
    assert_int_equal(local_cache_find(w->local_cache, &d[0], &n, NULL), 0);
    assert_int_equal(pins_drop(w->local_cache, "7", NULL), 0);
    assert_int_equal(local_cache_gc(w->local_cache, &want, &gone, NULL), 0);
    assert_int_equal(gone.blobs, 1);
}

static void test_a_sweep_leaves_what_is_locked(void **state)
{
    struct world *w = *state;
    struct local_cache_lock *lock;
    struct digest key;
    size_t n;

    assert_int_equal(pins_write(w->local_cache, "7", &(struct job_pins){0}, NULL), 0);
    assert_int_equal(pins_write(w->local_cache, "9", &(struct job_pins){0}, NULL), 0);
    pins_lock_key("7", &key);
    assert_int_equal(local_cache_try_lock(w->local_cache, &key, false, &lock, NULL), 0);
    assert_int_equal(pins_sweep(w->local_cache, UINT64_MAX, nobody, NULL, &n, NULL), 0);
    assert_true(n == 1 && there(w, "7.json") && !there(w, "9.json"));
    local_cache_unlock(&lock);
    assert_int_equal(pins_sweep(w->local_cache, UINT64_MAX, nobody, NULL, &n, NULL), 0);
    assert_true(n == 1 && !there(w, "7.json"));
}

static void test_sweep(void **state)
{
    struct world *w = *state;
    char alive[] = "8";
    char folder[PATH_MAX];
    size_t n;

    assert_int_equal(pins_sweep(w->local_cache, UINT64_MAX, nobody, NULL, &n, NULL), 0);
    assert_int_equal(pins_write(w->local_cache, "7", &(struct job_pins){0}, NULL), 0);
    assert_int_equal(pins_write(w->local_cache, "8", &(struct job_pins){0}, NULL), 0);
    pins_folder(w->local_cache, "7", folder);
    assert_int_equal(mkdir(folder, 0755), 0);
    pins_folder(w->local_cache, "9", folder); /* its record was lost */
    assert_int_equal(mkdir(folder, 0755), 0);
    touch(w, "10.json.new~"); /* it was being written when its maker was killed */
    assert_int_equal(pins_sweep(w->local_cache, 1000, nobody, alive, &n, NULL), 0);
    assert_true(n == 0 && there(w, "7") && there(w, "7.json")); /* young */
    assert_int_equal(pins_sweep(w->local_cache, UINT64_MAX, nobody, alive, &n, NULL), 0);
    assert_true(!there(w, "7") && !there(w, "7.json") && !there(w, "9") &&
                !there(w, "10.json.new~"));
    assert_true(there(w, "8.json"));
}

/* What a record says was laid out goes to whoever wants it next; what it says wrongly goes
 * nowhere. */
static void test_what_was_laid_out_is_handed_on(void **state)
{
    struct world *w = *state;
    struct pins_laid laid[] = {{.at = "a/b"}, {.at = "../7x"}, {.at = "none"}};
    const struct job_pins p = {.laid = laid, .nlaid = ARRAY_LEN(laid)};
    char path[PATH_MAX], outside[PATH_MAX];
    struct digest d;
    uint64_t stamp;

    local_cache_put(w, SLICE("one"), &d);
    pins_folder(w->local_cache, "7", path);
    strcat(path, "/a/b");
    assert_int_equal(dir_make(path, 0755, NULL), 0);
    assert_int_equal(place_blob(w->local_cache, &d, path, SLICE("x/y"), false, NULL), 0);
    assert_int_equal(spare_stamp(path, &laid[0].stamp, NULL), 0);
    pins_folder(w->local_cache, "7x", outside);
    assert_int_equal(dir_make(outside, 0755, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(laid); i++) {
        laid[i].key = d;
    }
    assert_int_equal(pins_write(w->local_cache, "7", &p, NULL), 0);
    assert_int_equal(pins_drop(w->local_cache, "7", NULL), 0);
    assert_true(!there(w, "7") && !there(w, "7.json") && there(w, "7x"));
    pins_folder(w->local_cache, "8", path);
    assert_true(spare_take(w->local_cache, &d, path, &stamp));
    assert_true(stamp == laid[0].stamp && there(w, "8/x/y"));
    assert_false(spare_take(w->local_cache, &d, path, &stamp));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pins, local_cache_setup, local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_gc_keeps_what_is_pinned, local_cache_setup,
                                        local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_a_sweep_leaves_what_is_locked, local_cache_setup,
                                        local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_what_was_laid_out_is_handed_on, local_cache_setup,
                                        local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_sweep, local_cache_setup, local_cache_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
