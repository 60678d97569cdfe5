#include "server/store/batch.h"
#include "tests/harness/store.h"

#include <fcntl.h>
#include <sys/stat.h>

static void test_inline_and_file(void **state)
{
    struct fixture *f = *state;
    static const size_t sizes[] = {0, 1, 4096, 32768, 32769, 100000, 5 << 20};
    struct digest d[ARRAY_LEN(sizes)];

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        d[i] = put_sample(f->s, i + 1, sizes[i], "r", "k");
        assert_blob(f->s, &d[i], sizes[i]);
        assert_int_equal(blob_file_is_there(f, &d[i]), sizes[i] > BLOB_INLINE_BYTES);
    }
    fixture_reopen(f);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        assert_blob(f->s, &d[i], sizes[i]);
    }
}

static void test_read_whole(void **state)
{
    static const size_t sizes[] = {0, 1, 32768, 32769, (3 << 20) + 1};
    struct fixture *f = *state;
    struct buf out = BUF_INIT(4 << 20), little = BUF_INIT(32768);
    struct git_oid got, want;
    struct blob *b = NULL;

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct digest d = put_sample(f->s, i + 1, sizes[i], NULL, NULL);
        struct slice bytes = sample_bytes(i + 1, sizes[i]);
        buf_clear(&out);
        buf_str(&out, "before");
        assert_int_equal(blob_read_whole(f->s, &d, &out, NULL), 0);
        assert_true(slice_eqs(slice_first(buf_slice(&out), 6), "before"));
        assert_true(slice_eq(slice_from(buf_slice(&out), 6), bytes));
        buf_clear(&little);
        assert_int_equal(blob_read_whole(f->s, &d, &little, NULL), sizes[i] > 32768 ? E_TOOBIG : 0);
        git_oid_of(bytes, &want);
        assert_int_equal(blob_open(f->s, &d, &b, NULL), 0);
        assert_int_equal(blob_git_oid(b, &got, NULL), 0);
        assert_true(git_oid_eq(&got, &want));
        blob_release(&b);
        free((char *)(uintptr_t)bytes.p);
    }
    assert_int_equal(blob_read_whole(f->s, &(struct digest){0}, &out, NULL), E_NOTFOUND);
    buf_free(&out);
    buf_free(&little);
}

static void test_handle_outlives_row(void **state)
{
    struct fixture *f = *state;
    struct digest d = put_sample(f->s, 1, 100000, NULL, NULL);
    struct batch *b = batch_new();
    struct blob *blob = NULL;
    char byte;

    assert_int_equal(blob_open(f->s, &d, &blob, NULL), 0);
    batch_del(b, TABLE_BLOB, slice_of(d.b, DIGEST_BYTES));
    batch_after(b, AFTER_UNLINK, &d, 0);
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    assert_false(blob_file_is_there(f, &d));
    assert_int_equal(blob_read(blob, 99999, &byte, 1, NULL), 0);
    assert_int_equal(blob_read(blob, 99999, &byte, 2, NULL), E_INVALID);
    assert_int_equal(blob_read(blob, UINT64_MAX, &byte, 2, NULL), E_INVALID);
    blob_release(&blob);
    assert_int_equal(blob_open(f->s, &d, &blob, NULL), E_NOTFOUND);
}

static void test_unlink_spares_what_a_row_names(void **state)
{
    struct fixture *f = *state;
    struct digest d = put_sample(f->s, 1, 100000, NULL, NULL);
    struct batch *b = batch_new();

    batch_after(b, AFTER_UNLINK, &d, 0);
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    assert_blob(f->s, &d, 100000);
}

static struct stage *staged(struct fixture *f, struct slice bytes, bool named, struct digest *d)
{
    struct stage *st = NULL;

    assert_int_equal(stage_open(f->s, bytes.n, named, &st, NULL), 0);
    assert_int_equal(stage_write(st, bytes.p, bytes.n, 0, NULL), 0);
    digest_of(bytes, d);
    return st;
}

static void test_given_up_batch_leaves_no_file(void **state)
{
    struct fixture *f = *state;
    struct slice bytes = sample_bytes(7, 50000);
    struct digest d;
    struct stage *st = staged(f, bytes, false, &d);
    struct batch *b = batch_new();

    assert_int_equal(stage_seal(&st, &d, bytes.n, NULL, 0, b, NULL, NULL), 0);
    assert_null(st);
    assert_true(blob_file_is_there(f, &d));
    batch_free(&b);
    assert_false(blob_file_is_there(f, &d));
    free((char *)(uintptr_t)bytes.p);
}

static void test_two_seals_of_one_digest(void **state)
{
    struct fixture *f = *state;
    struct slice bytes = sample_bytes(7, 50000);
    struct digest d;
    struct stage *one = staged(f, bytes, false, &d);
    struct stage *two = staged(f, bytes, true, &d);
    struct batch *b1 = batch_new();
    struct batch *b2 = batch_new();

    assert_int_equal(stage_seal(&one, &d, bytes.n, NULL, 0, b1, NULL, NULL), 0);
    assert_int_equal(stage_seal(&two, &d, bytes.n, NULL, 0, b2, NULL, NULL), 0);
    batch_free(&b1); /* the other one still needs the file */
    assert_true(blob_file_is_there(f, &d));
    assert_int_equal(store_commit(f->s, &b2, COMMIT_LAZY, NULL), 0);
    assert_blob(f->s, &d, bytes.n);
    free((char *)(uintptr_t)bytes.p);
}

/* An eviction between a seal and its commit takes the row, not the file; the commit brings the row
 * back. */
static void test_seal_against_removal(void **state)
{
    struct fixture *f = *state;
    struct digest d = put_sample(f->s, 7, 50000, NULL, NULL);
    struct slice bytes = sample_bytes(7, 50000);
    struct digest same;
    struct stage *st = staged(f, bytes, false, &same);
    struct batch *mine = batch_new();
    struct batch *theirs = batch_new();

    assert_int_equal(stage_seal(&st, &d, bytes.n, NULL, 0, mine, NULL, NULL), 0);
    batch_del(theirs, TABLE_BLOB, slice_of(d.b, DIGEST_BYTES));
    batch_after(theirs, AFTER_UNLINK, &d, 0);
    assert_int_equal(store_commit(f->s, &theirs, COMMIT_SYNC, NULL), 0);
    assert_true(blob_file_is_there(f, &d));
    assert_int_equal(store_commit(f->s, &mine, COMMIT_SYNC, NULL), 0);
    assert_blob(f->s, &d, bytes.n);
    free((char *)(uintptr_t)bytes.p);
}

/* The kernel tells a failed write-back once: a second sync would find nothing wrong. */
static void test_what_the_disk_lost_is_not_sealed(void **state)
{
    struct fixture *f = *state;
    struct slice bytes = sample_bytes(5, 90000);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC); /* cannot be synced */
    struct batch *b = batch_new();
    struct stage *st = NULL;
    struct digest d;
    int file;

    assert_int_equal(stage_open(f->s, bytes.n, true, &st, NULL), 0);
    assert_int_equal(stage_write(st, bytes.p, bytes.n, 0, NULL), 0);
    file = dup(stage_fd(st));
    assert_true(null != -1 && file != -1 && dup2(null, stage_fd(st)) != -1);
    assert_int_not_equal(stage_sync(st, NULL), 0);
    assert_int_not_equal(dup2(file, stage_fd(st)), -1);
    assert_int_equal(stage_sync(st, NULL), E_IO); /* the kernel says it once, the stage each time */
    assert_true(stage_lost(st));
    digest_of(bytes, &d);
    assert_int_equal(stage_seal(&st, &d, bytes.n, NULL, 0, b, NULL, NULL), E_IO);
    stage_abort(&st);
    batch_free(&b);
    close(file);
    close(null);
    free((char *)(uintptr_t)bytes.p);
}

static void test_parked_stage_resumes(void **state)
{
    struct fixture *f = *state;
    struct slice bytes = sample_bytes(3, 90000);
    struct stage *st = NULL;
    struct batch *b = batch_new();
    struct digest d;
    uint64_t id;
    char key[STAGE_KEY_BYTES];
    char path[128];

    assert_int_equal(stage_open(f->s, bytes.n, true, &st, NULL), 0);
    assert_int_equal(stage_write(st, bytes.p, 40000, 0, NULL), 0);
    assert_int_equal(stage_sync(st, NULL), 0);
    id = stage_id(st);
    stage_key(id, key);
    batch_put(b, TABLE_PARTIAL, slice_of(key, sizeof key), SLICE("40000"));
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    stage_park(&st);
    fixture_reopen(f);
    assert_int_equal(stage_sweep(f->s, NULL), 0);
    assert_int_equal(stage_resume(f->s, id, bytes.n, &st, NULL), 0);
    assert_int_equal(stage_write(st, bytes.p + 40000, bytes.n - 40000, 40000, NULL), 0);
    digest_of(bytes, &d);
    b = batch_new();
    batch_del(b, TABLE_PARTIAL, slice_of(key, sizeof key));
    assert_int_equal(stage_seal(&st, &d, bytes.n, NULL, 0, b, NULL, NULL), 0);
    snprintf(path, sizeof path, "%s/partial/%016llx", f->dir, (unsigned long long)id);
    assert_int_equal(access(path, F_OK), 0); /* until the commit: a crash here resumes */
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    assert_int_equal(access(path, F_OK), -1);
    assert_blob(f->s, &d, bytes.n);
    assert_int_equal(stage_resume(f->s, id, bytes.n, &st, NULL), E_NOTFOUND);
    free((char *)(uintptr_t)bytes.p);
}

static void test_sweep(void **state)
{
    struct fixture *f = *state;
    struct stage *lost = NULL, *open = NULL;
    struct batch *b = batch_new();
    char key[STAGE_KEY_BYTES];
    uint64_t lost_id, open_id;
    struct buf row = BUF_INIT(64);

    assert_int_equal(stage_open(f->s, 0, true, &lost, NULL), 0);
    assert_int_equal(stage_open(f->s, 0, true, &open, NULL), 0);
    lost_id = stage_id(lost);
    open_id = stage_id(open);
    stage_park(&lost);
    stage_key(42, key);
    batch_put(b, TABLE_PARTIAL, slice_of(key, sizeof key), SLICE("a row without a file"));
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    assert_int_equal(stage_sweep(f->s, NULL), 0);
    assert_int_equal(stage_resume(f->s, lost_id, 0, &lost, NULL), E_NOTFOUND);
    assert_int_equal(stage_resume(f->s, open_id, 0, &lost, NULL), E_BUSY);
    assert_int_equal(store_get(f->s, TABLE_PARTIAL, slice_of(key, sizeof key), &row, NULL),
                     E_NOTFOUND);
    stage_abort(&open);
    assert_int_equal(stage_resume(f->s, open_id, 0, &lost, NULL), E_NOTFOUND);
    buf_free(&row);
}

static void damage_file(struct fixture *f, const struct digest *d, bool cut)
{
    char hex[DIGEST_HEX + 1];
    char path[200];

    digest_format(d, hex);
    snprintf(path, sizeof path, "%s/blobs/%.2s/%.2s/%s", f->dir, hex, hex + 2, hex);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(cut ? truncate(path, 10) : unlink(path), 0);
}

static void test_damaged_blob_goes_with_its_object(void **state)
{
    struct fixture *f = *state;

    for (int cut = 0; cut < 2; cut++) {
        struct digest d = put_sample(f->s, 9, 60000, "r", "k");
        struct blob *b = NULL;
        struct buf row = BUF_INIT(64);

        damage_file(f, &d, cut);
        assert_int_equal(blob_open(f->s, &d, &b, NULL), E_CORRUPT);
        assert_int_equal(blob_open(f->s, &d, &b, NULL), E_NOTFOUND);
        assert_int_equal(store_get(f->s, TABLE_OBJECT, SLICE("r\0k"), &row, NULL), E_NOTFOUND);
        assert_false(blob_file_is_there(f, &d));
        buf_free(&row);
    }
    put_sample(f->s, 9, 60000, "r", "k");
}

/* A seal heals what it finds damaged. */
static void test_seal_replaces_a_torn_file(void **state)
{
    struct fixture *f = *state;
    struct digest d = put_sample(f->s, 9, 60000, "r", "k");

    damage_file(f, &d, true);
    put_sample(f->s, 9, 60000, "r", "k");
    assert_blob(f->s, &d, 60000);
}

static void test_chunks(void **state)
{
    struct fixture *f = *state;
    const size_t big = (8 << 20) + 12345;
    struct digest small = put_sample(f->s, 1, 100, NULL, NULL);
    struct digest large = put_sample(f->s, 2, big, NULL, NULL);
    struct buf given = BUF_INIT(1 << 20);
    struct buf made = BUF_INIT(1 << 20);
    struct chunk_list c;
    struct batch *b = batch_new();

    assert_int_equal(blob_chunks(f->s, &small, &given, NULL), 0);
    assert_int_equal(chunks_decode(buf_slice(&given), &c, NULL), 0);
    assert_int_equal(c.count, 1);
    assert_true(digest_eq(&c.chunk[0], &small));
    chunks_free(&c);
    assert_int_equal(blob_chunks(f->s, &large, &given, NULL), 0);
    assert_int_equal(chunks_decode(buf_slice(&given), &c, NULL), 0);
    assert_int_equal(c.count, 2);
    chunks_free(&c);
    batch_del(b, TABLE_CHUNKS, slice_of(large.b, DIGEST_BYTES));
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    assert_int_equal(blob_chunks(f->s, &large, &made, NULL), 0);
    assert_true(slice_eq(buf_slice(&given), buf_slice(&made)));
    buf_free(&given);
    buf_free(&made);
}

static void test_quota_and_reservations(void **state)
{
    struct fixture *f = *state;
    struct stage *a = NULL, *b = NULL;
    struct store_space sp;
    char *mb = calloc(1, 1 << 20);

    f->set.quota_bytes = 10 << 20;
    fixture_reopen(f);
    assert_int_equal(stage_open(f->s, 7 << 20, false, &a, NULL), 0);
    assert_int_equal(stage_open(f->s, 7 << 20, false, &b, NULL), E_NOSPACE);
    assert_int_equal(stage_open(f->s, 0, false, &b, NULL), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(stage_write(b, mb, 1 << 20, (uint64_t)i << 20, NULL), 0);
    }
    assert_int_equal(stage_write(b, mb, 1 << 20, 3 << 20, NULL), E_NOSPACE);
    store_space(f->s, &sp);
    assert_int_equal(sp.staged_bytes, 10 << 20);
    assert_false(sp.full);
    stage_abort(&a);
    assert_int_equal(stage_write(b, mb, 1 << 20, 3 << 20, NULL), 0);
    stage_abort(&b);
    store_space(f->s, &sp);
    assert_int_equal(sp.staged_bytes, 0);
    free(mb);
}

static void assert_space(struct fixture *f, uint64_t parked, uint64_t staged_bytes)
{
    struct store_space sp;

    store_space(f->s, &sp);
    assert_int_equal(sp.parked_bytes, parked);
    assert_int_equal(sp.staged_bytes, staged_bytes);
}

static void test_what_is_parked_counts(void **state)
{
    struct fixture *f = *state;
    struct stage *st = NULL, *other = NULL;
    struct batch *b = batch_new();
    char key[STAGE_KEY_BYTES];
    char *mb = memset(malloc(1 << 20), 'x', 1 << 20);
    uint64_t id;

    f->set.quota_bytes = 10 << 20;
    fixture_reopen(f);
    assert_int_equal(stage_open(f->s, 8 << 20, true, &st, NULL), 0);
    for (int i = 0; i < 6; i += 2) { /* with holes */
        assert_int_equal(stage_write(st, mb, 1 << 20, (uint64_t)i << 20, NULL), 0);
    }
    assert_int_equal(stage_sync(st, NULL), 0);
    id = stage_id(st);
    stage_key(id, key);
    batch_put(b, TABLE_PARTIAL, slice_of(key, sizeof key), SLICE("a fill"));
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    stage_park(&st);
    for (int i = 0; i < 2; i++) { /* in this life and the next */
        assert_space(f, 3 << 20, 0);
        assert_int_equal(stage_open(f->s, 8 << 20, false, &other, NULL), E_NOSPACE);
        assert_int_equal(stage_open(f->s, 7 << 20, false, &other, NULL), 0);
        assert_int_equal(stage_resume(f->s, id, 8 << 20, &st, NULL), E_NOSPACE);
        assert_space(f, 3 << 20, 7 << 20);
        stage_abort(&other);
        fixture_reopen(f);
        assert_int_equal(stage_sweep(f->s, NULL), 0);
    }
    assert_int_equal(stage_resume(f->s, id, 8 << 20, &st, NULL), 0);
    assert_space(f, 0, 8 << 20);
    stage_park(&st);
    assert_space(f, 3 << 20, 0);
    assert_int_equal(stage_resume(f->s, id, 0, &st, NULL), 0);
    stage_abort(&st);
    assert_space(f, 0, 0);
    free(mb);
}

static void test_counters_are_exact(void **state)
{
    struct fixture *f = *state;
    struct store_space sp;
    struct digest d;
    struct batch *b;

    put_sample(f->s, 1, 100, "r", "a");
    put_sample(f->s, 1, 100, "r", "b"); /* the same blob */
    put_sample(f->s, 2, 5 << 20, "r", "c");
    d = put_sample(f->s, 3, 50000, "r", "d");
    store_space(f->s, &sp);
    assert_int_equal(sp.blobs, 3);
    assert_int_equal(sp.used_bytes, 100 + (5 << 20) + 50000);
    assert_int_equal(sp.small_bytes, 100 + 50000);
    b = batch_new();
    batch_del(b, TABLE_BLOB, slice_of(d.b, DIGEST_BYTES));
    batch_del(b, TABLE_BLOB, slice_of(d.b, DIGEST_BYTES));
    batch_after(b, AFTER_UNLINK, &d, 0);
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    fixture_reopen(f);
    store_space(f->s, &sp);
    assert_int_equal(sp.blobs, 2);
    assert_int_equal(sp.used_bytes, 100 + (5 << 20));
    assert_int_equal(sp.small_bytes, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)
        T(test_inline_and_file),
        T(test_read_whole),
        T(test_handle_outlives_row),
        T(test_unlink_spares_what_a_row_names),
        T(test_given_up_batch_leaves_no_file),
        T(test_two_seals_of_one_digest),
        T(test_seal_against_removal),
        T(test_what_the_disk_lost_is_not_sealed),
        T(test_parked_stage_resumes),
        T(test_sweep),
        T(test_damaged_blob_goes_with_its_object),
        T(test_seal_replaces_a_torn_file),
        T(test_chunks),
        T(test_quota_and_reservations),
        T(test_what_is_parked_counts),
        T(test_counters_are_exact),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
