#include "tests/harness/store.h"

#include <fcntl.h>
#include <sys/wait.h>

static void test_second_opener(void **state)
{
    struct fixture *f = *state;
    struct store *other = NULL;
    struct err e = {0};
    char pid[32];

    assert_int_equal(store_open(&f->set, &other, &e), E_BUSY);
    assert_null(other);
    snprintf(pid, sizeof pid, "process %d", (int)getpid());
    assert_non_null(strstr(e.text, f->dir));
    assert_non_null(strstr(e.text, pid));
}

static void test_newer_schema(void **state)
{
    struct fixture *f = *state;
    struct batch *b = batch_new();
    struct err e = {0};

    batch_put(b, TABLE_META, SLICE("schema"), SLICE("2"));
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    store_close(&f->s);
    assert_int_equal(store_open(&f->set, &f->s, &e), E_UNSUPPORTED);
    assert_non_null(strstr(e.text, "newer mirrord"));
    assert_null(f->s);
}

/* Runs this program again, to die with the store open: a fork of this process would lack RocksDB's
 * threads. */
static void die_with_it_open(struct fixture *f)
{
    char name[] = "store";
    char *const argv[] = {name, f->dir, NULL};
    int status;
    pid_t child = fork();

    if (child == 0) {
        execv("/proc/self/exe", argv);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_clean_mark(void **state)
{
    struct fixture *f = *state;

    assert_true(store_was_clean(f->s)); /* a new one */
    fixture_reopen(f);
    assert_true(store_was_clean(f->s));
    store_close(&f->s);
    die_with_it_open(f);
    fixture_open(f);
    assert_false(store_was_clean(f->s));
    fixture_reopen(f);
    assert_true(store_was_clean(f->s));
}

static void test_bad_folder(void **state)
{
    struct store_settings set = {.state_dir = "/dev/null/x", .block_cache_bytes = 1 << 20};
    struct store *s = NULL;
    struct err e = {0};

    (void)state;
    assert_int_not_equal(store_open(&set, &s, &e), 0);
    assert_null(s);
    assert_string_not_equal(e.text, "");
}

static void test_health_and_metrics(void **state)
{
    struct fixture *f = *state;
    struct buf b = BUF_INIT(1 << 16);
    struct store_space sp;

    assert_true(store_healthy(f->s, NULL));
    store_metrics(f->s, &b);
    assert_non_null(strstr(buf_cstr(&b), "mirrord_rocksdb_block_cache_bytes "));
    store_space(f->s, &sp);
    assert_true(sp.quota_bytes > 0 && sp.disk_free_bytes > 0 && !sp.full);
    buf_free(&b);
}

int main(int argc, char **argv)
{
    struct store_settings set = {.state_dir = argv[argc - 1], .block_cache_bytes = 1 << 20};
    struct store *s;
    const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)
        T(test_second_opener),      T(test_newer_schema),
        T(test_clean_mark),         cmocka_unit_test(test_bad_folder),
        T(test_health_and_metrics),
    };

    if (argc == 2) {
        _exit(store_open(&set, &s, NULL) == 0 ? 0 : 1);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
