/* An unpacked archive is shared by all jobs of the node: what one changes in it no other one
 * gets. */
#include "agent/cache/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/local_cache.h"

static void add(struct archive *a, const char *name, mode_t type, mode_t mode, const char *text)
{
    struct archive_entry *entry = archive_entry_new();

    archive_entry_set_pathname(entry, name);
    archive_entry_set_filetype(entry, type);
    archive_entry_set_perm(entry, mode);
    archive_entry_set_mtime(entry, 1000000000, 0);
    archive_entry_set_size(entry, (la_int64_t)strlen(text));
    assert_int_equal(archive_write_header(a, entry), ARCHIVE_OK);
    assert_int_equal(archive_write_data(a, text, strlen(text)), strlen(text));
    archive_entry_free(entry);
}

static int setup_unpack(void **state)
{
    struct archive *a = archive_write_new();
    struct world *w;
    static char tar[64 << 10];
    size_t n = 0;

    assert_int_equal(archive_write_set_format_ustar(a), ARCHIVE_OK);
    assert_int_equal(archive_write_open_memory(a, tar, sizeof tar, &n), ARCHIVE_OK);
    add(a, "sub", AE_IFDIR, 0777, "");
    add(a, "sub/words", AE_IFREG, 0666, "the first");
    add(a, "sub/words", AE_IFREG, 0666, "the words"); /* appended later: the last one counts */
    add(a, "deep/er/tool", AE_IFREG, 0777, "#!");     /* in folders that have no entry */
    assert_int_equal(archive_write_close(a), ARCHIVE_OK);
    archive_write_free(a);
    (void)local_cache_setup(state);
    w = *state;
    local_cache_put(w, slice_of(tar, n), &w->digest);
    return 0;
}

static mode_t mode_of(const char *dir, const char *name)
{
    char path[2 * PATH_MAX];
    struct stat st;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode & 07777;
}

static void has(const char *dir, const char *name, const char *text)
{
    char path[2 * PATH_MAX];
    struct buf b = BUF_INIT(1 << 20);

    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(buf_read_file(&b, path, NULL), 0);
    assert_string_equal(buf_cstr(&b), text);
    buf_free(&b);
}

static ino_t unpacked(struct world *w, char path[PATH_MAX])
{
    struct local_cache_lock *hold = NULL;
    struct stat st;

    assert_int_equal(unpack_blob(w->local_cache, &w->digest, path, &hold, NULL), 0);
    local_cache_unlock(&hold);
    assert_int_equal(stat(path, &st), 0);
    return st.st_ino;
}

static void nothing_of_it_can_be_written(void **state)
{
    struct world *w = *state;
    char path[PATH_MAX], to[PATH_MAX];
    ino_t first = unpacked(w, path);

    assert_int_equal(mode_of(path, "."), 0555);
    assert_int_equal(mode_of(path, "sub"), 0555);
    assert_int_equal(mode_of(path, "sub/words"), 0444);
    assert_int_equal(mode_of(path, "deep/er"), 0555);
    assert_int_equal(mode_of(path, "deep/er/tool"), 0555);
    has(path, "sub/words", "the words");
    assert_int_equal(unpacked(w, path), first); /* and is not made again */

    snprintf(to, sizeof to, "%s/own", w->dir);
    assert_int_equal(unpack_copy(path, to, NULL), 0); /* a copy is the user's */
    assert_int_equal(mode_of(to, "sub/words"), 0644);
    assert_int_equal(mode_of(to, "sub"), 0755);
    assert_int_equal(unpack_copy(path, to, NULL), 0);
}

/* As root does, or an owner who gives himself the bit: same size, and the time set back. */
static void overwrite(const char *path)
{
    struct stat st;
    struct timespec times[2];
    int fd;

    assert_int_equal(stat(path, &st), 0);
    times[0] = st.st_atim;
    times[1] = st.st_mtim;
    assert_int_equal(chmod(path, 0644), 0);
    fd = open(path, O_WRONLY);
    assert_int_equal(write(fd, "lies", 4), 4);
    assert_int_equal(futimens(fd, times), 0);
    assert_int_equal(fchmod(fd, st.st_mode & 07777), 0);
    close(fd);
}

static void what_was_changed_is_unpacked_anew(void **state)
{
    struct world *w = *state;
    char path[PATH_MAX], name[2 * PATH_MAX];

    unpacked(w, path);
    snprintf(name, sizeof name, "%s/sub/words", path);
    overwrite(name);
    unpacked(w, path);
    has(path, "sub/words", "the words");
    assert_int_equal(mode_of(path, "sub/words"), 0444);

    snprintf(name, sizeof name, "%s/sub", path);
    assert_int_equal(chmod(name, 0755), 0);
    snprintf(name, sizeof name, "%s/sub/words", path);
    assert_int_equal(unlink(name), 0);
    unpacked(w, path);
    has(path, "sub/words", "the words");

    snprintf(name, sizeof name, "%s.stamp", path); /* of a local cache that is older than stamps */
    assert_int_equal(unlink(name), 0);
    unpacked(w, path);
    assert_int_equal(access(name, F_OK), 0);
}

static void gc_takes_it_though_it_cannot_be_written(void **state)
{
    struct world *w = *state;
    struct local_cache_gc_params want = {
        .keep_bytes = 0, .keep_age_s = UINT64_MAX, .now_unix_s = 1};
    struct local_cache_totals removed;
    char path[PATH_MAX], name[2 * PATH_MAX];

    unpacked(w, path);
    assert_int_equal(local_cache_gc(w->local_cache, &want, &removed, NULL), 0);
    assert_int_equal(removed.trees, 1);
    assert_int_equal(access(path, F_OK), -1);
    snprintf(name, sizeof name, "%s.stamp", path);
    assert_int_equal(access(name, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_of_it_can_be_written, setup_unpack,
                                        local_cache_teardown),
        cmocka_unit_test_setup_teardown(what_was_changed_is_unpacked_anew, setup_unpack,
                                        local_cache_teardown),
        cmocka_unit_test_setup_teardown(gc_takes_it_though_it_cannot_be_written, setup_unpack,
                                        local_cache_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
