#include "agent/shelf/pins.h"

#include <sys/stat.h>

#include "tests/harness/shelf.h"

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

    assert_int_equal(pins_all(w->shelf, &all, &n, NULL), 0);
    assert_int_equal(n, 0);
    free(all);
    shelf_put(w, SLICE("one"), &d[0]);
    shelf_put(w, SLICE("two"), &d[1]);
    assert_int_equal(pins_write(w->shelf, "7", d, 2, NULL), 0);
    assert_int_equal(pins_write(w->shelf, "8", d, 1, NULL), 0);
    assert_int_equal(pins_all(w->shelf, &all, &n, NULL), 0);
    assert_int_equal(n, 3);
    free(all);
    touch(w, "9.json"); /* of no job that we know how to read */
    touch(w, "x.json");
    assert_int_equal(pins_all(w->shelf, &all, &n, NULL), 0);
    assert_int_equal(n, 3);
    free(all);
    assert_int_equal(pins_drop(w->shelf, "7", NULL), 0);
    assert_int_equal(pins_drop(w->shelf, "7", NULL), 0);
    assert_int_equal(pins_all(w->shelf, &all, &n, NULL), 0);
    assert_true(n == 1 && digest_eq(&all[0], &d[0]));
    free(all);
    assert_int_equal(pins_write(w->shelf, "../7", d, 1, NULL), E_INVALID);
    assert_int_equal(pins_drop(w->shelf, "", NULL), E_INVALID);
}

static void test_gc_keeps_what_is_pinned(void **state)
{
    struct world *w = *state;
    struct shelf_gc_want want = {.keep_bytes = 0, .keep_age_s = UINT64_MAX, .now_unix_s = 1u << 31};
    struct shelf_totals gone;
    struct digest d[2];
    uint64_t n;

    shelf_put(w, SLICE("one"), &d[0]);
    shelf_put(w, SLICE("two"), &d[1]);
    assert_int_equal(pins_write(w->shelf, "7", d, 1, NULL), 0);
    assert_int_equal(shelf_gc(w->shelf, &want, &gone, NULL), 0);
    assert_int_equal(gone.blobs, 1);
    assert_int_equal(shelf_find(w->shelf, &d[0], &n, NULL), 0);
    assert_int_equal(pins_drop(w->shelf, "7", NULL), 0);
    assert_int_equal(shelf_gc(w->shelf, &want, &gone, NULL), 0);
    assert_int_equal(gone.blobs, 1);
}

static void test_a_sweep_leaves_what_is_locked(void **state)
{
    struct world *w = *state;
    struct shelf_lock *lock;
    struct digest key;
    size_t n;

    assert_int_equal(pins_write(w->shelf, "7", NULL, 0, NULL), 0);
    assert_int_equal(pins_write(w->shelf, "9", NULL, 0, NULL), 0);
    pins_lock_key("7", &key);
    assert_int_equal(shelf_try_lock(w->shelf, &key, false, &lock, NULL), 0);
    assert_int_equal(pins_sweep(w->shelf, UINT64_MAX, nobody, NULL, &n, NULL), 0);
    assert_true(n == 1 && there(w, "7.json") && !there(w, "9.json"));
    shelf_unlock(&lock);
    assert_int_equal(pins_sweep(w->shelf, UINT64_MAX, nobody, NULL, &n, NULL), 0);
    assert_true(n == 1 && !there(w, "7.json"));
}

static void test_sweep(void **state)
{
    struct world *w = *state;
    char alive[] = "8";
    char folder[PATH_MAX];
    size_t n;

    assert_int_equal(pins_sweep(w->shelf, UINT64_MAX, nobody, NULL, &n, NULL), 0);
    assert_int_equal(pins_write(w->shelf, "7", NULL, 0, NULL), 0);
    assert_int_equal(pins_write(w->shelf, "8", NULL, 0, NULL), 0);
    pins_folder(w->shelf, "7", folder);
    assert_int_equal(mkdir(folder, 0755), 0);
    pins_folder(w->shelf, "9", folder); /* its record was lost */
    assert_int_equal(mkdir(folder, 0755), 0);
    touch(w, "10.json.new~"); /* it was being written when its maker was killed */
    assert_int_equal(pins_sweep(w->shelf, 1000, nobody, alive, &n, NULL), 0);
    assert_true(n == 0 && there(w, "7") && there(w, "7.json")); /* young */
    assert_int_equal(pins_sweep(w->shelf, UINT64_MAX, nobody, alive, &n, NULL), 0);
    assert_true(!there(w, "7") && !there(w, "7.json") && !there(w, "9") &&
                !there(w, "10.json.new~"));
    assert_true(there(w, "8.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pins, shelf_setup, shelf_teardown),
        cmocka_unit_test_setup_teardown(test_gc_keeps_what_is_pinned, shelf_setup, shelf_teardown),
        cmocka_unit_test_setup_teardown(test_a_sweep_leaves_what_is_locked, shelf_setup,
                                        shelf_teardown),
        cmocka_unit_test_setup_teardown(test_sweep, shelf_setup, shelf_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
