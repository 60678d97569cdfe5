#include "server/store/lineage.h"

#include "tests/harness/store.h"

#define REPO SLICE("models")
#define TREE SLICE("me/gpt")

/* A version on the head: "+a/b" sets a file, "-a/b" takes it away, separated by blanks. */
static struct snap publish(struct fixture *f, const struct snap *was, const char *changes)
{
    struct slice rest = slice_str(changes);
    struct tree_edit ed[8] = {0};
    struct batch *b = batch_new();
    struct digest base, root;
    struct snap sn;
    uint64_t entries, bytes;
    size_t n = 0;

    tree_empty_root(&base);
    while (rest.n != 0) {
        struct slice one = slice_cut(&rest, ' ');
        ed[n].entry = (struct entry){.path = slice_from(one, 1), .type = ENTRY_FILE};
        ed[n].entry.digest.b[0] = was != NULL ? (uint8_t)was->seq + 1 : 1;
        ed[n++].remove = one.p[0] == '-';
    }
    assert_int_equal(
        tree_edit(f->s, was != NULL ? &was->root : &base, ed, n, b, &root, &entries, &bytes, NULL),
        0);
    assert_int_equal(
        head_publish(f->s, REPO, TREE, &root, entries, bytes, NULL, true, 1000, b, &sn, NULL), 0);
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    return sn;
}

static void assert_last(struct fixture *f, const struct snap *of, const char *path, uint64_t seq)
{
    struct lineage *l = NULL;

    assert_int_equal(lineage_open(f->s, REPO, TREE, of, &l, NULL), 0);
    assert_int_equal(lineage_seq(l, slice_str(path)), seq);
    lineage_close(&l);
}

static void test_each_path(void **state)
{
    struct fixture *f = *state;
    struct snap one = publish(f, NULL, "+a +d/x +d/e/y +z");
    struct snap two = publish(f, &one, "+d/x");
    struct snap three = publish(f, &two, "+d/e/n +a");
    struct snap four = publish(f, &three, "-d/e/y");

    assert_last(f, &four, "z", 1);
    assert_last(f, &four, "d/x", 2);
    assert_last(f, &four, "a", 3);
    assert_last(f, &four, "d/e/n", 3);
    assert_last(f, &four, "d/e", 4);
    assert_last(f, &four, "d", 4);
    assert_last(f, &three, "d/e", 3);
    assert_last(f, &one, "d", 1);
    assert_int_equal(snap_remove(f->s, REPO, TREE, 2, NULL), 0); /* its change is its heir's now */
    assert_int_equal(snap_get(f->s, REPO, TREE, 4, &four, NULL), 0);
    assert_last(f, &four, "d/x", 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each_path, fixture_setup, fixture_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
