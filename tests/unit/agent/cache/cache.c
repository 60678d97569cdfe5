#include "agent/cache/cache.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/cache/place.h"
#include "tests/harness/local_cache.h"

static void test_many_are_sealed_together(void **state)
{
    enum { N = 9, BAD = 4 };
    struct world *w = *state;
    struct local_cache_sealing x[N];
    struct local_cache_sealing *all[N];
    char path[PATH_MAX];
    uint64_t n;

    for (size_t i = 0; i < N; i++) {
        char text[16];
        snprintf(text, sizeof text, "text %zu", i);
        digest_of(slice_str(text), &x[i].digest);
        x[i] = (struct local_cache_sealing){.key = x[i].digest, .digest = x[i].digest};
        local_cache_partial_path(w->local_cache, &x[i].key, ".part", path);
        x[i].fd = open(path, O_RDWR | O_CREAT, 0644);
        assert_int_equal(write(x[i].fd, text, strlen(text)), strlen(text));
        all[i] = &x[i];
    }
    local_cache_partial_path(w->local_cache, &x[BAD].key, ".part", path);
    assert_int_equal(unlink(path), 0); /* one fails, the others do not */
    local_cache_seal(w->local_cache, all, N);
    for (size_t i = 0; i < N; i++) {
        close(x[i].fd);
        assert_int_equal(x[i].rc, i == BAD ? E_NOTFOUND : 0);
        assert_int_equal(local_cache_find(w->local_cache, &x[i].digest, &n, NULL), x[i].rc);
    }
}

static void test_seal_and_find(void **state)
{
    struct world *w = *state;
    struct digest d;
    struct digest absent = {{9}};
    char path[PATH_MAX];
    uint64_t n;

    local_cache_put(w, SLICE("hello"), &d);
    assert_int_equal(local_cache_find(w->local_cache, &d, &n, NULL), 0);
    assert_int_equal(n, 5);
    assert_int_equal(local_cache_find(w->local_cache, &absent, &n, NULL), E_NOTFOUND);
    local_cache_partial_path(w->local_cache, &d, ".part", path);
    assert_int_equal(access(path, F_OK), -1);
}

static void test_touched_blobs_are_hashed(void **state)
{
    struct world *w = *state;
    struct digest d;
    char path[PATH_MAX];
    struct stat st;
    uint64_t n;
    int fd;

    local_cache_put(w, SLICE("hello"), &d);
    local_cache_blob_path(w->local_cache, &d, path);
    assert_int_equal(utimensat(AT_FDCWD, path, NULL, 0), 0); /* touched, not changed */
    assert_int_equal(local_cache_find(w->local_cache, &d, &n, NULL), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mtim.tv_sec, 1);
    assert_int_equal(chmod(path, 0644), 0);
    fd = open(path, O_WRONLY);
    assert_int_equal(write(fd, "J", 1), 1);
    close(fd);
    assert_int_equal(local_cache_find(w->local_cache, &d, &n, NULL), E_NOTFOUND);
    assert_int_equal(access(path, F_OK), -1);
}

static void test_locks(void **state)
{
    struct world *w = *state;
    struct digest d = {{5}};
    struct local_cache_lock *a, *b, *c;

    assert_int_equal(local_cache_try_lock(w->local_cache, &d, false, &a, NULL), 0);
    assert_int_equal(local_cache_try_lock(w->local_cache, &d, false, &b, NULL), E_BUSY);
    assert_int_equal(local_cache_try_lock(w->local_cache, &d, true, &b, NULL), E_BUSY);
    local_cache_unlock(&a);
    assert_int_equal(local_cache_try_lock(w->local_cache, &d, true, &a, NULL), 0);
    assert_int_equal(local_cache_try_lock(w->local_cache, &d, true, &b, NULL), 0);
    assert_int_equal(local_cache_try_lock(w->local_cache, &d, false, &c, NULL), E_BUSY);
    local_cache_unlock(&a);
    local_cache_unlock(&b);
}

static void test_locks_are_their_users_alone(void **state)
{
    struct world *w = *state;
    struct local_cache *again;
    struct stat st;
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/locks", w->dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(chmod(path, 0755), 0); /* as they were once */
    assert_int_equal(local_cache_open(w->dir, &again, NULL), 0);
    local_cache_close(&again);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
}

static void test_a_lock_of_what_is_no_more(void **state)
{
    struct world *w = *state;
    struct digest d = {{6}};
    struct local_cache_lock *a;
    char path[PATH_MAX], hex[DIGEST_HEX + 1];

    digest_format(&d, hex);
    snprintf(path, sizeof path, "%s/locks/%s", w->dir, hex);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(local_cache_try_lock(w->local_cache, &d, false, &a, NULL), 0);
        assert_int_equal(access(path, F_OK), 0);
        local_cache_retire(w->local_cache, &d, &a);
        assert_null(a);
        assert_int_equal(access(path, F_OK), -1);
    }
    local_cache_retire(w->local_cache, &d, &a);
}

static void test_journal(void **state)
{
    struct world *w = *state;
    struct digest d = {{1}}, e = {{2}}, got;
    char path[PATH_MAX], anew[PATH_MAX], hex[DIGEST_HEX + 1];
    FILE *f;

    local_cache_note(w->local_cache, &d, 5, SLICE("\"a\""), SLICE("http://m/x"));
    assert_true(local_cache_recall(w->local_cache, SLICE("http://m/x"), SLICE("\"a\""), &got));
    assert_true(digest_eq(&got, &d));
    assert_false(local_cache_recall(w->local_cache, SLICE("http://m/x"), SLICE("\"b\""), &got));
    assert_false(local_cache_recall(w->local_cache, SLICE("http://m/y"), SLICE("\"a\""), &got));
    snprintf(path, sizeof path, "%s/journal", w->dir);
    f = fopen(path, "a"); /* a torn line costs itself alone */
    fputs("123 45\nnonsense\n\n", f);
    fclose(f);
    local_cache_note(w->local_cache, &e, 5, SLICE("\"b\""), SLICE("http://m/x"));
    assert_true(local_cache_recall(w->local_cache, SLICE("http://m/x"), SLICE("\"b\""), &got));
    assert_true(digest_eq(&got, &e));
    assert_false(local_cache_recall(w->local_cache, SLICE("http://m/x"), SLICE("\"a\""), &got));
    f = fopen(path, "a"); /* a line that somebody is about to write counts once it is whole */
    digest_format(&d, hex);
    fprintf(f, "9 %s 5 \"d\" http:", hex);
    fflush(f);
    assert_true(local_cache_recall(w->local_cache, SLICE("http://m/x"), SLICE("\"b\""), &got));
    fputs("//m/x\n", f);
    fclose(f);
    assert_true(local_cache_recall(w->local_cache, SLICE("http://m/x"), SLICE("\"d\""), &got));
    snprintf(anew, sizeof anew, "%s/anew", w->dir);
    f = fopen(anew, "w"); /* as gc does */
    fprintf(f, "9 %s 5 \"e\" http://m/y\n", hex);
    fclose(f);
    assert_int_equal(rename(anew, path), 0);
    assert_false(local_cache_recall(w->local_cache, SLICE("http://m/x"), SLICE("\"d\""), &got));
    assert_true(local_cache_recall(w->local_cache, SLICE("http://m/y"), SLICE("\"e\""), &got));
    local_cache_note(w->local_cache, &d, 5, SLICE("\"c\""), SLICE("http://m/z?sig=1"));
    assert_false(
        local_cache_recall(w->local_cache, SLICE("http://m/z?sig=1"), SLICE("\"c\""), &got));
}

static void test_names(void **state)
{
    static const char *const bad[] = {"",     "/a",   "a/",    "a//b", ".",    "..",
                                      "a/..", "../a", "a/./b", "a\nb", "a\x7f"};
    static const char *const good[] = {"a", "a/b", "...", "a b", "\xc3\xa9", ".git", "a..b/c"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_false(local_cache_name_ok(slice_str(bad[i])));
    }
    assert_false(local_cache_name_ok(slice_of("a\0b", 3)));
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_true(local_cache_name_ok(slice_str(good[i])));
    }
}

static void test_place(void **state)
{
    struct world *w = *state;
    struct buf text = BUF_INIT(100);
    struct digest d;
    char dir[PATH_MAX];
    char path[PATH_MAX + 16];

    local_cache_put(w, SLICE("hello"), &d);
    snprintf(dir, sizeof dir, "%s/to", w->dir);
    assert_int_equal(mkdir(dir, 0755), 0);
    assert_int_equal(place_blob(w->local_cache, &d, dir, SLICE("x/y"), false, NULL), 0);
    assert_int_equal(place_blob(w->local_cache, &d, dir, SLICE("x/y"), false, NULL), 0);
    assert_int_equal(place_blob(w->local_cache, &d, dir, SLICE("x/y"), true, NULL), 0);
    snprintf(path, sizeof path, "%s/x/y", dir);
    assert_int_equal(buf_read_file(&text, path, NULL), 0);
    assert_string_equal(buf_cstr(&text), "hello");
    buf_free(&text);
    snprintf(path, sizeof path, "%s/l", dir);
    assert_int_equal(symlink("/tmp", path), 0); /* what lies in the way is not followed */
    assert_true(place_blob(w->local_cache, &d, dir, SLICE("l/y"), false, NULL) != 0);
}

static void test_collecting(void **state)
{
    struct world *w = *state;
    struct local_cache_gc_params all = {.keep_bytes = 0, .keep_age_s = UINT64_MAX, .now_unix_s = 1};
    struct local_cache_totals t;
    struct local_cache_lock *lock;
    struct digest d, used;
    uint64_t n;

    local_cache_put(w, SLICE("hello"), &d);
    local_cache_put(w, SLICE("in use"), &used);
    assert_int_equal(local_cache_try_lock(w->local_cache, &used, true, &lock, NULL), 0);
    assert_int_equal(local_cache_gc(w->local_cache, &all, &t, NULL), 0);
    assert_int_equal(t.blobs, 1);
    assert_int_equal(local_cache_find(w->local_cache, &d, &n, NULL), E_NOTFOUND);
    assert_int_equal(local_cache_find(w->local_cache, &used, &n, NULL), 0);
    local_cache_unlock(&lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_many_are_sealed_together, local_cache_setup,
                                        local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_seal_and_find, local_cache_setup,
                                        local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_touched_blobs_are_hashed, local_cache_setup,
                                        local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_locks, local_cache_setup, local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_locks_are_their_users_alone, local_cache_setup,
                                        local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_a_lock_of_what_is_no_more, local_cache_setup,
                                        local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_journal, local_cache_setup, local_cache_teardown),
        cmocka_unit_test(test_names),
        cmocka_unit_test_setup_teardown(test_place, local_cache_setup, local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_collecting, local_cache_setup, local_cache_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
