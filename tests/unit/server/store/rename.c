#include "server/store/rename.h"

#include "server/store/note.h"
#include "server/store/ref.h"
#include "tests/harness/store.h"

#define REPO SLICE("models")

/* A version of a tree whose one file says what it is. */
static struct snap publish(struct store *s, const char *tree, const char *says, const char *title)
{
    struct note note = {SLICE("ci"), slice_str(title), SLICE("")};
    struct batch *b = batch_new();
    struct tree_edit ed = {.entry = {.path = SLICE("f"), .type = ENTRY_FILE}};
    struct blob *blob = NULL;
    struct buf key = BUF_INIT(4096);
    struct digest empty;
    struct digest root;
    struct snap sn;
    uint64_t entries;
    uint64_t bytes;

    assert_int_equal(blob_put_bytes(s, slice_str(says), b, &blob, NULL), 0);
    ed.entry.digest = *blob_digest(blob);
    ed.entry.size_bytes = strlen(says);
    tree_empty_root(&empty);
    assert_int_equal(tree_edit(s, &empty, &ed, 1, b, &root, &entries, &bytes, NULL), 0);
    holder_key(&key, &ed.entry.digest, REPO, 't', slice_str(tree));
    batch_put(b, TABLE_HOLDER, buf_slice(&key), SLICE(""));
    assert_int_equal(head_publish(s, REPO, slice_str(tree), &root, entries, bytes, NULL, true, 1000,
                                  b, &sn, NULL),
                     0);
    note_put(b, REPO, slice_str(tree), sn.seq, &note);
    rename_forget(b, REPO, slice_str(tree));
    assert_int_equal(store_commit(s, &b, COMMIT_SYNC, NULL), 0);
    blob_release(&blob);
    buf_free(&key);
    return sn;
}

static int name_it(struct store *s, const char *tree, enum ref_kind kind, const char *name,
                   uint64_t seq)
{
    struct ref r = {.kind = kind, .name = slice_str(name), .seq = seq, .message = SLICE("")};

    return ref_create(s, REPO, slice_str(tree), &r, NULL);
}

static int move(struct store *s, const char *from, const char *to)
{
    return rename_run(s, REPO, slice_str(from), slice_str(to), &(struct err){0});
}

static const char *leads(struct store *s, const char *from, struct buf *to)
{
    return rename_find(s, REPO, slice_str(from), to, NULL) == 0 ? buf_cstr(to) : "";
}

static uint64_t rows(struct store *s)
{
    struct verify_report r;

    assert_int_equal(verify_run(s, true, false, NULL, NULL, NULL, &r, NULL), 0);
    assert_true(verify_is_clean(&r));
    return r.orphans;
}

static uint64_t collected(struct store *s)
{
    struct gc_report r;

    assert_int_equal(gc_run(s, 0, false, &r, NULL), 0);
    return r.blobs;
}

static void test_all_goes_along(void **state)
{
    struct fixture *f = *state;
    struct buf to = BUF_INIT(4096);
    struct arena a = {0};
    struct note n;
    struct snap sn;

    publish(f->s, "me/a", "one", "first");
    publish(f->s, "me/a", "two", "second");
    publish(f->s, "me/ab", "other", "stays");
    assert_int_equal(name_it(f->s, "me/a", REF_BRANCH, "dev", 1), 0);
    assert_int_equal(name_it(f->s, "me/a", REF_TAG, "v9", 1), 0);
    assert_int_equal(snap_tag(f->s, REPO, SLICE("me/a"), 1, SLICE("label"), NULL), 0);
    assert_int_equal(move(f->s, "me/a", "you/b"), 0);
    fixture_reopen(f);
    assert_int_equal(head_get(f->s, REPO, SLICE("me/a"), &sn, NULL), E_NOTFOUND);
    assert_int_equal(head_get(f->s, REPO, SLICE("you/b"), &sn, NULL), 0);
    assert_int_equal(sn.seq, 2);
    assert_int_equal(snap_find(f->s, REPO, SLICE("you/b"), SLICE("dev"), &sn, NULL), 0);
    assert_int_equal(sn.seq, 1);
    assert_int_equal(snap_find(f->s, REPO, SLICE("you/b"), SLICE("refs/v9"), &sn, NULL), 0);
    assert_int_equal(snap_find(f->s, REPO, SLICE("you/b"), SLICE("label"), &sn, NULL), 0);
    assert_int_equal(note_get(f->s, REPO, SLICE("you/b"), 2, &a, &n, NULL), 0);
    assert_true(slice_eqs(n.title, "second") && slice_eqs(n.author, "ci"));
    assert_int_equal(note_get(f->s, REPO, SLICE("me/a"), 2, &a, &n, NULL), E_NOTFOUND);
    assert_int_equal(head_get(f->s, REPO, SLICE("me/ab"), &sn, NULL), 0);
    assert_string_equal(leads(f->s, "me/a", &to), "you/b");
    assert_int_equal(rows(f->s), 0);
    assert_int_equal(collected(f->s), 0);
    assert_int_equal(rows(f->s), 0);
    arena_fini(&a);
    buf_free(&to);
}

/* Both are whole, and each goes its own way. */
static void test_a_copy(void **state)
{
    struct fixture *f = *state;
    struct arena a = {0};
    struct note n;
    struct snap sn;

    publish(f->s, "me/a", "one", "first");
    publish(f->s, "me/a", "two", "second");
    publish(f->s, "me/x", "x", "");
    assert_int_equal(name_it(f->s, "me/a", REF_BRANCH, "dev", 1), 0);
    assert_int_equal(rename_copy(f->s, REPO, SLICE("me/none"), SLICE("me/b"), NULL), E_NOTFOUND);
    assert_int_equal(rename_copy(f->s, REPO, SLICE("me/a"), SLICE("me/x"), NULL), E_EXISTS);
    assert_int_equal(rename_copy(f->s, REPO, SLICE("me/a"), SLICE("me/a"), NULL), E_EXISTS);
    assert_int_equal(rename_copy(f->s, REPO, SLICE("me/a"), SLICE("me/b"), NULL), 0);
    assert_int_equal(move(f->s, "me/x", "me/y"), 0);
    assert_int_equal(rename_copy(f->s, REPO, SLICE("me/a"), SLICE("me/x"), NULL), E_EXISTS);
    fixture_reopen(f);
    assert_int_equal(rename_drop(f->s, REPO, SLICE("me/a"), NULL), 0);
    assert_int_equal(collected(f->s), 0);
    assert_int_equal(rows(f->s), 0);
    assert_int_equal(head_get(f->s, REPO, SLICE("me/b"), &sn, NULL), 0);
    assert_int_equal(sn.seq, 2);
    assert_int_equal(snap_find(f->s, REPO, SLICE("me/b"), SLICE("dev"), &sn, NULL), 0);
    assert_int_equal(sn.seq, 1);
    assert_int_equal(note_get(f->s, REPO, SLICE("me/b"), 1, &a, &n, NULL), 0);
    assert_true(slice_eqs(n.title, "first"));
    arena_fini(&a);
}

static void test_names_lead_on(void **state)
{
    struct fixture *f = *state;
    struct buf to = BUF_INIT(4096);

    publish(f->s, "me/a", "one", "");
    publish(f->s, "me/x", "x", "");
    assert_int_equal(move(f->s, "me/none", "me/b"), E_NOTFOUND);
    assert_int_equal(move(f->s, "me/a", "me/x"), E_EXISTS);
    assert_int_equal(move(f->s, "me/a", "me/a"), E_EXISTS);
    assert_int_equal(move(f->s, "me/a", "me/b"), 0);
    assert_int_equal(move(f->s, "me/b", "me/c"), 0);
    assert_string_equal(leads(f->s, "me/a", &to), "me/c");
    assert_string_equal(leads(f->s, "me/b", &to), "me/c");
    assert_int_equal(move(f->s, "me/c", "me/a"), 0); /* back: the name is a tree's again */
    assert_string_equal(leads(f->s, "me/a", &to), "");
    assert_string_equal(leads(f->s, "me/b", &to), "me/a");
    publish(f->s, "me/b", "new", ""); /* somebody takes an old name */
    assert_string_equal(leads(f->s, "me/b", &to), "");
    assert_string_equal(leads(f->s, "me/c", &to), "me/a");
    assert_int_equal(rename_drop(f->s, REPO, SLICE("me/a"), NULL), 0);
    assert_string_equal(leads(f->s, "me/c", &to), "");
    buf_free(&to);
}

static int count_row(void *arg, struct slice key, struct slice value)
{
    (void)key;
    (void)value;
    ++*(int *)arg;
    return 0;
}

static void test_a_tree_goes(void **state)
{
    static const enum table tables[] = {TABLE_HEAD, TABLE_SNAP,  TABLE_NOTE,
                                        TABLE_REF,  TABLE_MOVED, TABLE_HOLDER};
    struct fixture *f = *state;
    struct snap sn;

    publish(f->s, "me/a", "one", "first");
    publish(f->s, "me/a", "two", "second");
    assert_int_equal(name_it(f->s, "me/a", REF_BRANCH, "dev", 1), 0);
    assert_int_equal(move(f->s, "me/a", "me/b"), 0);
    assert_int_equal(rename_drop(f->s, REPO, SLICE("me/a"), NULL), E_NOTFOUND);
    assert_int_equal(rename_drop(f->s, REPO, SLICE("me/b"), NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
        int count = 0;
        assert_int_equal(
            store_scan(f->s, tables[i], SLICE(""), SLICE_NONE, count_row, &count, NULL), 0);
        assert_int_equal(count, 0);
    }
    assert_int_equal(collected(f->s), 2);
    assert_int_equal(rows(f->s), 0);
    publish(f->s, "me/b", "anew", "");
    assert_int_equal(head_get(f->s, REPO, SLICE("me/b"), &sn, NULL), 0);
    assert_int_equal(sn.seq, 1);
}

/* Who began on a tree that went, and came again with the same numbers, does not go on with the new
 * one. */
static void test_another_tree_of_that_name(void **state)
{
    struct fixture *f = *state;
    struct batch *b = batch_new();
    struct snap old = publish(f->s, "me/a", "one", "");
    struct snap sn;

    assert_int_equal(head_publish(f->s, REPO, SLICE("me/a"), &old.root, 1, 3, &old.root, false,
                                  1000, b, &sn, NULL),
                     0);
    assert_int_equal(rename_drop(f->s, REPO, SLICE("me/a"), NULL), 0);
    publish(f->s, "me/a", "one", "");
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), E_CHANGED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_all_goes_along, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_a_copy, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_names_lead_on, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_a_tree_goes, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_another_tree_of_that_name, fixture_setup,
                                        fixture_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
