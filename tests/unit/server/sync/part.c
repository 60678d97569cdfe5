/* Rows of what has come of a file: found again, told apart, dropped with their files. */
#include "tests/harness/store.h"

#include "server/sync/part.h"

#define REPO SLICE("debian")

static struct sync_entry listed(const char *path)
{
    return (struct sync_entry){
        .type = SYNC_FILE, .path = slice_str(path), .size_bytes = 100, .mtime_ns = 7};
}

static uint64_t put(struct fixture *f, struct slice repo, const char *path, uint64_t bytes,
                    uint64_t now)
{
    struct part p = {.repo = repo,
                     .path = slice_str(path),
                     .upstream = SLICE("http://a.example/"),
                     .seen = {.listed_size = 100,
                              .listed_mtime_ns = 7,
                              .size_bytes = bytes,
                              .taken_unix_s = now,
                              .validator = SLICE("\"e\"")}};
    struct batch *b = batch_new();
    struct stage *st = NULL;

    assert_int_equal(stage_open(f->s, 100, true, &st, NULL), 0);
    assert_int_equal(stage_write(st, "x", 1, 0, NULL), 0);
    p.stage_id = stage_id(st);
    assert_int_equal(stage_sync(st, NULL), 0);
    part_put(b, &p);
    assert_int_equal(store_commit(f->s, &b, COMMIT_LAZY, NULL), 0);
    stage_park(&st);
    return p.stage_id;
}

static size_t count(struct fixture *f, struct slice repo)
{
    struct list all;
    size_t n = 0;

    list_init(&all);
    assert_int_equal(parts_load(f->s, repo, &all, NULL), 0);
    LIST_EACH (&all, it) {
        n += it != NULL;
    }
    parts_free(&all);
    return n;
}

static void test_found_again(void **state)
{
    struct fixture *f = *state;
    struct sync_entry en = listed("a/b");
    struct list all;
    struct part *p;

    put(f, REPO, "a/b", 10, 1);
    put(f, REPO, "a/b", 30, 1); /* the longer one counts */
    put(f, REPO, "a/c", 50, 1);
    put(f, SLICE("debia"), "a/b", 60, 1);
    fixture_reopen(f);
    list_init(&all);
    assert_int_equal(parts_load(f->s, REPO, &all, NULL), 0);
    assert_null(parts_take(&all, SLICE("a")));
    p = parts_take(&all, SLICE("a/b"));
    assert_non_null(p);
    assert_int_equal(p->seen.size_bytes, 30);
    assert_true(slice_eq(p->seen.validator, SLICE("\"e\"")));
    assert_true(part_fits(p, &en, SLICE("http://a.example/")));
    assert_false(part_fits(p, &en, SLICE("http://b.example/")));
    en.mtime_ns++;
    assert_false(part_fits(p, &en, SLICE("http://a.example/")));
    en = listed("a/b");
    en.digest_known = true;
    assert_false(part_fits(p, &en, SLICE("http://a.example/")));
    part_drop(f->s, &p);
    assert_null(p);
    parts_free(&all);
    assert_int_equal(count(f, REPO), 2);
    assert_int_equal(count(f, SLICE_NONE), 3);
}

static void test_a_digest_tells_whatever_the_upstream(void **state)
{
    struct part p = {.digest_known = true, .upstream = SLICE("http://a.example/")};
    struct sync_entry en = listed("a");

    (void)state;
    digest_of(SLICE("x"), &p.digest);
    en.digest_known = true;
    en.digest = p.digest;
    assert_true(part_fits(&p, &en, SLICE("http://b.example/")));
    digest_of(SLICE("y"), &en.digest);
    assert_false(part_fits(&p, &en, SLICE("http://a.example/")));
    en.digest_known = false;
    assert_false(part_fits(&p, &en, SLICE("http://a.example/")));
}

static bool is_debian(void *arg, struct slice repo)
{
    (void)arg;
    return slice_eq(repo, REPO);
}

static void test_swept(void **state)
{
    struct fixture *f = *state;
    struct batch *b = batch_new();
    struct stage *st = NULL;
    uint64_t old = put(f, REPO, "old", 10, 1000);
    struct err e;

    put(f, REPO, "young", 10, 1000 + PART_KEEP_S);
    put(f, SLICE("gone"), "a", 10, 1000 + PART_KEEP_S);
    /* What does not decode is nobody's. Another's row stays. */
    batch_put(b, TABLE_PARTIAL, SLICE("\0\0\0\0\0\0\0\7"), SLICE("sync1 and no more"));
    batch_put(b, TABLE_PARTIAL, SLICE("\0\0\0\0\0\0\0\11"), SLICE("upload x"));
    assert_int_equal(store_commit(f->s, &b, COMMIT_LAZY, NULL), 0);
    parts_sweep(f->s, is_debian, NULL, 1001 + PART_KEEP_S);
    assert_int_equal(count(f, SLICE_NONE), 1);
    assert_int_equal(stage_resume(f->s, old, 0, &st, &e), E_NOTFOUND);
    parts_drop(f->s, REPO);
    assert_int_equal(count(f, SLICE_NONE), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_found_again, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_a_digest_tells_whatever_the_upstream, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_swept, fixture_setup, fixture_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
