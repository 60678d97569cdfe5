#include "agent/cache/stage.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/local_cache.h"

static const struct slice text = {"some text", 9};

static int setup(void **state)
{
    struct world *w;

    (void)local_cache_setup(state);
    w = *state;
    digest_of(text, &w->digest);
    return 0;
}

static bool is_staged(const struct world *w)
{
    char path[PATH_MAX];

    local_cache_partial_path(w->local_cache, &w->digest, LOCAL_CACHE_STAGED, path);
    return access(path, F_OK) == 0;
}

static void leave(const struct world *w, const char *bytes, size_t n)
{
    char path[PATH_MAX];
    int fd;

    local_cache_partial_path(w->local_cache, &w->digest, LOCAL_CACHE_STAGED, path);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
}

static void test_claims(void **state)
{
    struct world *w = *state;
    struct stage *mine = NULL;
    struct stage *theirs = NULL; /* an open file of its own, as another process has */
    struct digest other = {{7}};

    assert_int_equal(stage_open(w->local_cache, &mine, NULL), 0);
    assert_int_equal(stage_open(w->local_cache, &theirs, NULL), 0);
    assert_int_equal(stage_claim(mine, &w->digest, NULL), 0);
    assert_int_equal(stage_claim(mine, &w->digest, NULL), 0);
    assert_int_equal(stage_claim(theirs, &w->digest, NULL), E_BUSY);
    assert_int_equal(stage_claim(theirs, &other, NULL), 0);
    stage_drop(mine, &w->digest);
    assert_int_equal(stage_claim(theirs, &w->digest, NULL), 0);
    assert_int_equal(stage_claim(mine, &w->digest, NULL), E_BUSY);
    stage_close(&theirs);
    assert_int_equal(stage_claim(mine, &w->digest, NULL), 0);
    assert_int_equal(stage_claim(mine, &other, NULL), 0);
    stage_close(&mine);
    stage_close(&mine);
}

static void seal(struct world *w, size_t n)
{
    struct local_cache_sealing x[8] = {{.rc = 0}};
    struct local_cache_sealing *all[8];

    for (size_t i = 0; i < n; i++) { /* twice the same, as of two processes: no harm */
        x[i] = (struct local_cache_sealing){
            .key = w->digest, .digest = w->digest, .fd = -1, .staged = true};
        all[i] = &x[i];
    }
    local_cache_seal(w->local_cache, all, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(x[i].rc, 0);
    }
}

static void test_put_then_sealed(void **state)
{
    struct world *w = *state;
    char path[PATH_MAX];
    struct stat st;
    uint64_t n;

    for (size_t many = 1; many < 8; many += 5) { /* by itself, and in a batch */
        assert_false(stage_find(w->local_cache, &w->digest, text.n));
        assert_int_equal(stage_put(w->local_cache, &w->digest, text, NULL), 0);
        assert_int_equal(stage_put(w->local_cache, &w->digest, text, NULL), 0);
        assert_true(stage_find(w->local_cache, &w->digest, text.n));
        assert_int_equal(local_cache_find(w->local_cache, &w->digest, &n, NULL), E_NOTFOUND);
        seal(w, many);
        assert_false(is_staged(w));
        assert_int_equal(local_cache_find(w->local_cache, &w->digest, &n, NULL), 0);
        assert_int_equal(n, text.n);
        local_cache_blob_path(w->local_cache, &w->digest, path);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0444);
        assert_int_equal(st.st_mtim.tv_sec, 1);
        assert_int_equal(unlink(path), 0);
    }
}

static void test_what_is_not_right_is_removed(void **state)
{
    struct world *w = *state;

    leave(w, "some", 4);
    assert_false(stage_find(w->local_cache, &w->digest, text.n));
    assert_false(is_staged(w));
    leave(w, "\0\0\0\0\0\0\0\0\0", 9);
    assert_false(stage_find(w->local_cache, &w->digest, text.n));
    assert_false(is_staged(w));
    leave(w, "", 0);
    assert_false(stage_find(w->local_cache, &w->digest, text.n));
    assert_false(is_staged(w));
}

static void test_a_link_is_not_followed(void **state)
{
    struct world *w = *state;
    char path[PATH_MAX];
    char away[PATH_MAX];
    struct stat st;

    snprintf(away, sizeof away, "%s/away", w->dir);
    local_cache_partial_path(w->local_cache, &w->digest, LOCAL_CACHE_STAGED, path);
    assert_int_equal(symlink(away, path), 0);
    assert_false(stage_find(w->local_cache, &w->digest, text.n));
    assert_int_equal(stage_put(w->local_cache, &w->digest, text, NULL), 0);
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISREG(st.st_mode));
    assert_int_equal(access(away, F_OK), -1);
}

static void test_one_that_gc_took_is_missed(void **state)
{
    struct world *w = *state;
    struct local_cache_sealing x[5];
    struct local_cache_sealing *all[5];

    for (size_t n = 1; n <= 5; n += 4) {
        for (size_t i = 0; i < n; i++) {
            x[i] = (struct local_cache_sealing){
                .key = w->digest, .digest = w->digest, .fd = -1, .staged = true};
            all[i] = &x[i];
        }
        local_cache_seal(w->local_cache, all, n);
        assert_int_equal(x[n - 1].rc, E_NOTFOUND);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_claims, setup, local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_put_then_sealed, setup, local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_what_is_not_right_is_removed, setup,
                                        local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_a_link_is_not_followed, setup, local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_one_that_gc_took_is_missed, setup,
                                        local_cache_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
