#include "tests/harness/store.h"

#include "server/store/tree.h"

#define REPO SLICE("models")

static void publish(struct store *s, const char *name, const struct digest *file, size_t size,
                    struct digest *root)
{
    struct tree_edit t = {
        .entry = {
            .path = SLICE("dir/file"), .type = ENTRY_FILE, .size_bytes = size, .digest = *file}};
    struct batch *b = batch_new();
    struct buf key = BUF_INIT(256);
    struct digest empty;
    struct snap sn;
    uint64_t entries, bytes;

    tree_empty_root(&empty);
    assert_int_equal(tree_edit(s, &empty, &t, 1, b, root, &entries, &bytes, NULL), 0);
    assert_int_equal(bytes, size);
    assert_int_equal(
        head_publish(s, REPO, slice_str(name), root, entries, bytes, NULL, true, 1, b, &sn, NULL),
        0);
    holder_key(&key, file, REPO, 't', slice_str(name));
    batch_put(b, TABLE_HOLDER, buf_slice(&key), SLICE_NONE);
    assert_int_equal(store_commit(s, &b, COMMIT_SYNC, NULL), 0);
    buf_free(&key);
}

static void drop_snap(struct store *s, const char *name, uint64_t seq)
{
    struct batch *b = batch_new();
    struct buf key = BUF_INIT(256);

    buf_addf(&key, "models%c%s%c", 0, name, 0);
    for (int i = 7; i >= 0; i--) {
        buf_byte(&key, (uint8_t)(~seq >> (8 * i)));
    }
    batch_del(b, TABLE_SNAP, buf_slice(&key));
    assert_int_equal(store_commit(s, &b, COMMIT_SYNC, NULL), 0);
    buf_free(&key);
}

static void test_collects_what_nothing_holds(void **state)
{
    struct fixture *f = *state;
    struct digest lost = put_sample(f->s, 1, 50000, NULL, NULL);
    struct digest small = put_sample(f->s, 2, 500, NULL, NULL);
    struct digest object = put_sample(f->s, 3, 50000, "hf", "k");
    struct digest v1 = put_sample(f->s, 4, 50000, NULL, NULL);
    struct digest v2 = put_sample(f->s, 5, 50000, NULL, NULL);
    struct digest r1, r2;
    struct gc_report rep;
    struct entry en;
    struct arena a = {0};

    publish(f->s, "me/gpt", &v1, 50000, &r1);
    publish(f->s, "me/gpt", &v2, 50000, &r2);
    assert_int_equal(gc_run(f->s, 3600, false, &rep, NULL), 0);
    assert_int_equal(rep.blobs + rep.nodes, 0); /* all within the grace */
    assert_int_equal(gc_run(f->s, 0, true, &rep, NULL), 0);
    assert_int_equal(rep.blobs, 2);
    assert_int_equal(rep.bytes, 50500);
    assert_true(blob_is_there(f->s, &lost));
    assert_int_equal(gc_run(f->s, 0, false, &rep, NULL), 0);
    assert_int_equal(rep.blobs, 2);
    assert_false(blob_is_there(f->s, &lost) || blob_is_there(f->s, &small));
    assert_false(blob_file_is_there(f, &lost));
    assert_blob(f->s, &object, 50000);
    assert_blob(f->s, &v1, 50000);
    drop_snap(f->s, "me/gpt", 1);
    assert_int_equal(gc_run(f->s, 0, false, &rep, NULL), 0);
    assert_int_equal(rep.blobs, 1);
    assert_int_equal(rep.nodes, 1);
    assert_false(blob_is_there(f->s, &v1));
    assert_int_equal(tree_get(f->s, &r1, SLICE("dir/file"), &a, &en, NULL), E_CORRUPT);
    assert_int_equal(tree_get(f->s, &r2, SLICE("dir/file"), &a, &en, NULL), 0);
    assert_blob(f->s, &v2, 50000);
    arena_fini(&a);
}

/* A holder whose object or upload session is gone lets go of the blob. */
static void test_holders_of_the_dead(void **state)
{
    struct fixture *f = *state;
    struct digest d = put_sample(f->s, 1, 50000, "hf", "k");
    struct batch *b = batch_new();
    struct buf key = BUF_INIT(256);
    struct gc_report rep;

    holder_key(&key, &d, REPO, 'u', SLICE("17"));
    batch_put(b, TABLE_HOLDER, buf_slice(&key), SLICE_NONE);
    batch_put(b, TABLE_UPLOAD, SLICE("17"), SLICE("session"));
    batch_del(b, TABLE_OBJECT, SLICE("hf\0k"));
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    assert_int_equal(gc_run(f->s, 0, false, &rep, NULL), 0);
    assert_int_equal(rep.blobs, 0);
    b = batch_new();
    batch_del(b, TABLE_UPLOAD, SLICE("17"));
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    assert_int_equal(gc_run(f->s, 0, false, &rep, NULL), 0);
    assert_int_equal(rep.blobs, 1);
    buf_free(&key);
}

/* What cannot be marked is not swept. */
static void test_damaged_tree_stops_it(void **state)
{
    struct fixture *f = *state;
    struct digest lost = put_sample(f->s, 1, 50000, NULL, NULL);
    struct digest file = put_sample(f->s, 2, 50000, NULL, NULL);
    struct digest root;
    struct batch *b = batch_new();
    struct gc_report rep;
    struct err e = {0};

    publish(f->s, "me/gpt", &file, 50000, &root);
    batch_del(b, TABLE_NODE, slice_of(root.b, DIGEST_BYTES));
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    assert_int_equal(gc_run(f->s, 0, false, &rep, &e), E_CORRUPT);
    assert_string_not_equal(e.text, "");
    assert_true(blob_is_there(f->s, &lost));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)
        T(test_collects_what_nothing_holds),
        T(test_holders_of_the_dead),
        T(test_damaged_tree_stops_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
