#include "server/store/batch.h"
#include "tests/harness/store.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "server/store/tree.h"

static void print_finding(void *arg, const char *what)
{
    char *all = arg;
    size_t n = strlen(all);

    snprintf(all + n, 4096 - n, "%s\n", what);
}

static struct verify_report verify(struct fixture *f, bool deep, bool repair, char all[4096])
{
    struct verify_report r;
    struct err e = {0};
    char none[4096] = "";

    if (verify_run(f->s, deep, repair, NULL, print_finding, all != NULL ? all : none, &r, &e) !=
        0) {
        fail_msg("verify: %s", e.text);
    }
    return r;
}

static uint64_t findings(const struct verify_report *r)
{
    return r->orphans + r->damaged + r->missing + r->bad_rows;
}

static void blob_file(const struct fixture *f, const struct digest *d, char path[200])
{
    char hex[DIGEST_HEX + 1];

    digest_format(d, hex);
    snprintf(path, 200, "%s/blobs/%.2s/%.2s/%s", f->dir, hex, hex + 2, hex);
}

static void test_whole_store(void **state)
{
    struct fixture *f = *state;
    struct verify_report r;
    struct gc_report g;
    char all[4096] = "";

    r = verify(f, true, false, NULL);
    assert_int_equal(findings(&r), 0);
    put_sample(f->s, 1, 500, "r", "a");
    put_sample(f->s, 2, 5 << 20, "r", "b");
    put_sample(f->s, 3, 50000, NULL, NULL);
    r = verify(f, true, false, all);
    assert_string_equal(all, "");
    assert_int_equal(r.blobs, 3);
    assert_int_equal(r.bytes, 500 + (5 << 20) + 50000);
    assert_int_equal(gc_run(f->s, 0, false, &g, NULL), 0);
    r = verify(f, true, false, all);
    assert_string_equal(all, "");
    assert_int_equal(r.blobs, 2);
}

static void test_orphan_files_go(void **state)
{
    struct fixture *f = *state;
    struct digest d = put_sample(f->s, 1, 50000, NULL, NULL);
    struct batch *b = batch_new();
    struct verify_report r;
    struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    char path[200];
    int fd;

    batch_del(b, TABLE_BLOB, slice_of(d.b, DIGEST_BYTES)); /* as a crash between row and file */
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    snprintf(path, sizeof path, "%s/partial/00000000000000aa", f->dir);
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(futimens(fd, old), 0);
    close(fd);
    r = verify(f, false, false, NULL);
    assert_int_equal(r.orphans, 2);
    assert_int_equal(r.repaired, 2);
    assert_int_equal(findings(&r), 2);
    assert_false(blob_file_is_there(f, &d));
    r = verify(f, false, false, NULL);
    assert_int_equal(findings(&r), 0);
}

static void flip(const char *path)
{
    int fd;
    char c = 0;

    assert_int_equal(chmod(path, 0600), 0);
    fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &c, 1, 777), 1);
    c ^= 1;
    assert_int_equal(pwrite(fd, &c, 1, 777), 1);
    close(fd);
}

static void test_damage_is_found_and_repaired(void **state)
{
    struct fixture *f = *state;
    struct digest rotten = put_sample(f->s, 1, 50000, "r", "rotten");
    struct digest torn = put_sample(f->s, 2, 50000, "r", "torn");
    struct digest gone = put_sample(f->s, 3, 50000, "r", "gone");
    struct digest inside = put_sample(f->s, 4, 500, "r", "inline");
    struct digest good = put_sample(f->s, 5, 50000, "r", "good");
    struct batch *b = batch_new();
    struct verify_report r;
    struct store_space sp;
    struct buf row = BUF_INIT(64);
    char path[200];

    blob_file(f, &rotten, path);
    flip(path);
    blob_file(f, &torn, path);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(truncate(path, 49999), 0);
    blob_file(f, &gone, path);
    assert_int_equal(unlink(path), 0);
    batch_put(b, TABLE_INLINE, slice_of(inside.b, DIGEST_BYTES), SLICE("short"));
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    r = verify(f, false, false, NULL);
    assert_int_equal(r.damaged, 2); /* torn and inline; rot needs a deep look */
    assert_int_equal(r.missing, 1);
    r = verify(f, true, false, NULL);
    assert_int_equal(r.damaged + r.missing, 4);
    assert_int_equal(r.repaired, 0);
    r = verify(f, true, true, NULL);
    assert_int_equal(r.damaged + r.missing, 4);
    assert_int_equal(r.repaired, 4);
    r = verify(f, true, false, NULL);
    assert_int_equal(findings(&r), 0);
    assert_int_equal(r.blobs, 1);
    assert_blob(f->s, &good, 50000);
    assert_int_equal(store_get(f->s, TABLE_OBJECT, SLICE("r\0torn"), &row, NULL), E_NOTFOUND);
    store_space(f->s, &sp);
    assert_int_equal(sp.used_bytes, 50000);
    put_sample(f->s, 1, 50000, "r", "rotten"); /* comes back from the origin */
    assert_blob(f->s, &rotten, 50000);
    buf_free(&row);
}

static void test_bad_rows(void **state)
{
    struct fixture *f = *state;
    struct digest d = put_sample(f->s, 1, 50000, "r", "k");
    struct digest nobody;
    struct batch *b = batch_new();
    struct verify_report r;
    char counts[24] = {0};

    memset(nobody.b, 9, sizeof nobody.b);
    batch_put(b, TABLE_INLINE, slice_of(nobody.b, DIGEST_BYTES), SLICE("x"));
    batch_put(b, TABLE_CHUNKS, slice_of(nobody.b, DIGEST_BYTES), SLICE("x"));
    batch_put(b, TABLE_ATIME, slice_of(nobody.b, DIGEST_BYTES), SLICE("xxxx"));
    batch_del(b, TABLE_OBJECT, SLICE("r\0k"));
    batch_put(b, TABLE_META, SLICE("counts"), slice_of(counts, sizeof counts));
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    fixture_reopen(f); /* the counters are read at start */
    r = verify(f, false, false, NULL);
    assert_int_equal(r.orphans, 3);  /* rows beside no blob: removed at once */
    assert_int_equal(r.bad_rows, 2); /* the holder without an object, the counters */
    r = verify(f, false, true, NULL);
    assert_int_equal(r.bad_rows, 2);
    r = verify(f, false, false, NULL);
    assert_int_equal(findings(&r), 0);
    assert_true(blob_is_there(f->s, &d));
}

/* A single PUT commits the blob with its holder before the tree it may be the first file of. */
static void test_publish_under_way(void **state)
{
    struct fixture *f = *state;
    struct digest d = put_sample(f->s, 1, 50000, NULL, NULL);
    struct batch *b = batch_new();
    struct buf key = BUF_INIT(200);
    struct verify_report r;

    holder_key(&key, &d, SLICE("models"), 't', SLICE("me/new"));
    batch_put(b, TABLE_HOLDER, buf_slice(&key), SLICE(""));
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    r = verify(f, true, true, NULL);
    assert_int_equal(findings(&r), 0);
    assert_true(blob_is_there(f->s, &d));
    buf_free(&key);
}

static void test_trees(void **state)
{
    struct fixture *f = *state;
    struct digest file = put_sample(f->s, 1, 50000, NULL, NULL);
    struct tree_edit t = {
        .entry = {.path = SLICE("a/b"), .type = ENTRY_FILE, .size_bytes = 50000, .digest = file}};
    struct digest empty, root;
    struct batch *b = batch_new();
    struct snap sn;
    struct verify_report r;
    uint64_t entries, bytes;
    char all[4096] = "";

    tree_empty_root(&empty);
    assert_int_equal(tree_edit(f->s, &empty, &t, 1, b, &root, &entries, &bytes, NULL), 0);
    assert_int_equal(head_publish(f->s, SLICE("models"), SLICE("me/x"), &root, 1, 50000, NULL,
                                  false, 1, b, &sn, NULL),
                     0);
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    r = verify(f, false, true, all); /* published without its holder row */
    assert_int_equal(r.bad_rows, 1);
    assert_int_equal(r.repaired, 1);
    r = verify(f, true, false, NULL);
    assert_int_equal(findings(&r), 0);
    b = batch_new();
    batch_del(b, TABLE_BLOB, slice_of(file.b, DIGEST_BYTES));
    batch_after(b, AFTER_UNLINK, &file, 0);
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    r = verify(f, false, true, NULL);
    assert_int_equal(r.missing, 1);
    put_sample(f->s, 1, 50000, NULL, NULL); /* a new upload heals it */
    r = verify(f, true, false, NULL);
    assert_int_equal(findings(&r), 0);
    b = batch_new();
    batch_del(b, TABLE_NODE, slice_of(root.b, DIGEST_BYTES));
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    all[0] = '\0';
    r = verify(f, false, false, all);
    assert_int_equal(r.damaged, 1);
    assert_non_null(strstr(all, "models me/x v1"));
}

static void test_scrub(void **state)
{
    struct fixture *f = *state;
    struct digest d[6];
    uint64_t read_bytes, damaged, seen = 0, bad = 0;
    char path[200];

    for (size_t i = 0; i < ARRAY_LEN(d); i++) {
        char key[8];
        snprintf(key, sizeof key, "%zu", i);
        d[i] = put_sample(f->s, i, i == 0 ? 100 : 50000, "r", key);
    }
    blob_file(f, &d[3], path);
    flip(path);
    for (int i = 0; i < 6; i++) { /* the cursor survives a restart */
        assert_int_equal(scrub_step(f->s, 60000, UINT64_MAX, &read_bytes, &damaged, NULL), 0);
        assert_true(read_bytes <= 110000);
        seen += read_bytes;
        bad += damaged;
        fixture_reopen(f);
    }
    assert_true(seen >= 250100);
    assert_int_equal(bad, 1);
    assert_false(blob_is_there(f->s, &d[3]));
    assert_blob(f->s, &d[0], 100);
    assert_blob(f->s, &d[5], 50000);
    assert_int_equal(scrub_step(f->s, 60000, 1, &read_bytes, &damaged, NULL), 0);
    assert_int_equal(read_bytes, 0); /* all are younger */
}

/* A disk that gives an error: our own pread() stands before libc's. */
static _Atomic ino_t sick_inode;

ssize_t pread64(int fd, void *p, size_t n, off_t off);
ssize_t pread64(int fd, void *p, size_t n, off_t off)
{
    struct stat st;

    if (sick_inode != 0 && fstat(fd, &st) == 0 && st.st_ino == sick_inode) {
        errno = EIO;
        return -1;
    }
    return (ssize_t)syscall(SYS_pread64, fd, p, n, off);
}

ssize_t pread(int fd, void *p, size_t n, off_t off)
{
    return pread64(fd, p, n, off);
}

static void make_sick(const struct fixture *f, const struct digest *d)
{
    char path[200];
    struct stat st;

    blob_file(f, d, path);
    assert_int_equal(stat(path, &st), 0);
    sick_inode = st.st_ino;
}

/* What an origin has may go and be fetched again; of an upload this is the only one, and the disk
 * may come back. */
static void test_unreadable(void **state)
{
    struct fixture *f = *state;
    struct digest fetched = put_sample(f->s, 1, 50000, "r", "a");
    struct digest uploaded = put_sample(f->s, 2, 50000, NULL, NULL);
    struct batch *b = batch_new();
    struct buf key = BUF_INIT(4096);
    struct verify_report r;
    uint64_t read_bytes, damaged;

    holder_key(&key, &uploaded, SLICE("models"), 't', SLICE("me/x"));
    batch_put(b, TABLE_HOLDER, buf_slice(&key), SLICE(""));
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    buf_free(&key);

    make_sick(f, &uploaded);
    assert_int_equal(scrub_step(f->s, 1 << 20, UINT64_MAX, &read_bytes, &damaged, NULL), 0);
    assert_int_equal(damaged, 1);
    r = verify(f, true, true, NULL);
    assert_true(r.damaged == 1 && r.repaired == 0 && r.blobs == 2);
    sick_inode = 0;
    assert_blob(f->s, &uploaded, 50000);

    make_sick(f, &fetched);
    assert_int_equal(scrub_step(f->s, 1 << 20, UINT64_MAX, &read_bytes, &damaged, NULL), 0);
    sick_inode = 0;
    assert_int_equal(damaged, 1);
    assert_false(blob_is_there(f->s, &fetched));
    assert_blob(f->s, &uploaded, 50000);
}

/* That nobody can open it just now says nothing of its bytes. */
static void test_no_descriptor_is_no_damage(void **state)
{
    struct fixture *f = *state;
    struct digest d = put_sample(f->s, 1, 50000, "r", "a");
    struct rlimit before, few;
    uint64_t read_bytes = 0, damaged = 0;
    struct err e;
    int rc;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){8, before.rlim_max}; /* more are open */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    rc = scrub_step(f->s, 1 << 20, UINT64_MAX, &read_bytes, &damaged, &e);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(damaged, 0);
    assert_int_equal(rc, E_BUSY);
    assert_blob(f->s, &d, 50000);
}

static bool aside(const struct fixture *f, const struct digest *d, const char *ending, time_t old)
{
    struct timespec at[2] = {{.tv_sec = old}, {.tv_sec = old}};
    char path[300], hex[DIGEST_HEX + 1];

    digest_format(d, hex);
    snprintf(path, sizeof path, "%s/quarantine/%s%s", f->dir, hex, ending);
    if (old != 0) {
        assert_int_equal(utimensat(AT_FDCWD, path, at, 0), 0);
    }
    return access(path, F_OK) == 0;
}

static void hold(const struct fixture *f, const struct digest *d)
{
    struct batch *b = batch_new();
    struct buf key = BUF_INIT(4096);

    holder_key(&key, d, SLICE("models"), 't', SLICE("me/x"));
    batch_put(b, TABLE_HOLDER, buf_slice(&key), SLICE(""));
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    buf_free(&key);
}

/* A bit of an upload has turned: what is left may be all that there is of it. */
static void test_the_last_copy_is_kept(void **state)
{
    struct fixture *f = *state;
    struct digest fetched = put_sample(f->s, 1, 50000, "r", "a");
    struct digest uploaded = put_sample(f->s, 2, 50000, NULL, NULL);
    struct digest forgotten = put_sample(f->s, 3, 50000, NULL, NULL);
    const struct digest *all[] = {&fetched, &uploaded, &forgotten};
    struct verify_report r;
    uint64_t freed;
    char path[200];

    hold(f, &uploaded);
    hold(f, &forgotten);
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        blob_file(f, all[i], path);
        flip(path);
    }
    r = verify(f, true, true, NULL);
    assert_true(r.damaged == 3 && r.repaired == 3);
    assert_true(aside(f, &fetched, "", 0));
    assert_true(aside(f, &uploaded, ".only", 0));
    assert_true(aside(f, &forgotten, ".only", 1000)); /* since 1970 */
    assert_int_equal(evict_run(f->s, 0, NULL, &freed, NULL), 0);
    assert_false(aside(f, &fetched, "", 0));
    assert_true(aside(f, &uploaded, ".only", 0));
    assert_false(aside(f, &forgotten, ".only", 0));

    put_sample(f->s, 2, 50000, NULL, NULL); /* somebody had it, after all */
    assert_int_equal(evict_run(f->s, 0, NULL, &freed, NULL), 0);
    assert_false(aside(f, &uploaded, ".only", 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)
        T(test_whole_store),
        T(test_orphan_files_go),
        T(test_damage_is_found_and_repaired),
        T(test_bad_rows),
        T(test_publish_under_way),
        T(test_trees),
        T(test_scrub),
        T(test_unreadable),
        T(test_no_descriptor_is_no_damage),
        T(test_the_last_copy_is_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
