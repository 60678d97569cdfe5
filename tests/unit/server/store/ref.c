#include "server/store/ref.h"

#include "tests/harness/store.h"

#define REPO SLICE("models")
#define TREE SLICE("me/gpt")

static struct digest root_of(uint8_t n)
{
    struct digest d;

    memset(d.b, n, sizeof d.b);
    return d;
}

/* On the head, or on a branch whose root is `was`. */
static int publish(struct store *s, const char *branch, uint8_t was, uint8_t root, struct snap *out)
{
    struct batch *b = batch_new();
    struct digest to = root_of(root), from = root_of(was);
    int rc = branch == NULL ? head_publish(s, REPO, TREE, &to, 1, 2, NULL, true, 1000, b, out, NULL)
                            : branch_publish(s, REPO, TREE, slice_str(branch), &to, 1, 2, &from,
                                             1000, b, out, NULL);

    rc = rc == 0 ? store_commit(s, &b, COMMIT_SYNC, NULL) : rc;
    batch_free(&b);
    return rc;
}

static int create(struct store *s, enum ref_kind kind, const char *name, uint64_t seq)
{
    struct ref r = {.kind = kind, .name = slice_str(name), .seq = seq, .message = SLICE("why")};

    return ref_create(s, REPO, TREE, &r, &(struct err){0});
}

static uint64_t found(struct store *s, const char *version)
{
    struct snap sn;

    return snap_find(s, REPO, TREE, slice_str(version), &sn, NULL) == 0 ? sn.seq : 0;
}

static void test_names(void **state)
{
    static const char *const good[] = {"dev", "feature/x", "v1",        "v1.0",    "100%",
                                       "a@b", "\xc3\xbc",  "step-1000", "x.lock.y"};
    static const char *const bad[] = {
        "",   "main", "HEAD",   "refs/pr/1", "a b",   "a..b",  "/a",   "a/",      "a//b",
        ".a", "a/.b", "a.lock", "-a",        "@",     "a@{1}", "a~1",  "a^",      "a:b",
        "a?", "a*",   "a[",     "a\\b",      "a\x7f", "a.",    "a\nb", "a.lock/b"};
    char hex[65];
    char longest[REF_NAME_MAX + 2];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_true(ref_name_valid(slice_str(good[i])));
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_false(ref_name_valid(slice_str(bad[i])));
    }
    memset(hex, 'a', 64);
    hex[64] = '\0';
    assert_false(ref_name_valid(slice_str(hex)));
    assert_false(ref_name_valid(slice_of(hex, 40)));
    assert_true(ref_name_valid(slice_of(hex, 39)));
    memset(longest, 'x', sizeof longest);
    assert_true(ref_name_valid(slice_of(longest, REF_NAME_MAX)));
    assert_false(ref_name_valid(slice_of(longest, REF_NAME_MAX + 1)));
}

static void test_branches_share_numbers(void **state)
{
    struct fixture *f = *state;
    struct snap sn;

    assert_int_equal(create(f->s, REF_BRANCH, "dev", 1), E_NOTFOUND); /* no tree */
    assert_int_equal(publish(f->s, NULL, 0, 1, &sn), 0);
    assert_int_equal(create(f->s, REF_BRANCH, "dev", 2), E_NOTFOUND); /* no version */
    assert_int_equal(create(f->s, REF_BRANCH, "dev", 1), 0);
    assert_int_equal(create(f->s, REF_BRANCH, "dev", 1), E_EXISTS);
    assert_int_equal(create(f->s, REF_TAG, "dev", 1), E_EXISTS);
    assert_int_equal(create(f->s, REF_TAG, "a b", 1), E_INVALID);
    assert_int_equal(publish(f->s, "dev", 1, 2, &sn), 0);
    assert_int_equal(sn.seq, 2);
    assert_int_equal(publish(f->s, NULL, 0, 3, &sn), 0);
    assert_int_equal(sn.seq, 3);
    assert_int_equal(sn.parent_seq, 1);
    assert_int_equal(publish(f->s, "dev", 2, 4, &sn), 0);
    assert_int_equal(sn.parent_seq, 2);
    assert_int_equal(publish(f->s, "dev", 2, 5, &sn), E_CHANGED);
    assert_int_equal(publish(f->s, "none", 2, 5, &sn), E_CHANGED);
    fixture_reopen(f);
    assert_int_equal(found(f->s, "dev"), 4);
    assert_int_equal(found(f->s, ""), 3);
    assert_int_equal(found(f->s, "main"), 3);
    assert_int_equal(found(f->s, "refs/heads/dev"), 4);
    assert_int_equal(found(f->s, "refs/heads/main"), 3);
    assert_int_equal(found(f->s, "refs/tags/dev"), 0);
    assert_int_equal(found(f->s, "refs/pr/1"), 0);
}

static void test_tags_stay(void **state)
{
    struct fixture *f = *state;
    struct snap sn;

    assert_int_equal(publish(f->s, NULL, 0, 1, &sn), 0);
    assert_int_equal(publish(f->s, NULL, 0, 2, &sn), 0);
    assert_int_equal(create(f->s, REF_TAG, "v2", 1), 0);
    assert_int_equal(create(f->s, REF_TAG, "good", 1), 0); /* as many as you like */
    assert_int_equal(publish(f->s, NULL, 0, 3, &sn), 0);
    assert_int_equal(found(f->s, "good"), 1);
    assert_int_equal(found(f->s, "v2"), 2); /* a number, here */
    assert_int_equal(found(f->s, "refs/v2"), 1);
    assert_int_equal(found(f->s, "refs/tags/v2"), 1);
    assert_int_equal(snap_tag(f->s, REPO, TREE, 2, SLICE("good"), NULL), E_EXISTS);
    assert_int_equal(snap_tag(f->s, REPO, TREE, 2, SLICE("best"), NULL), 0);
    assert_int_equal(create(f->s, REF_BRANCH, "best", 1), E_EXISTS);
    assert_int_equal(found(f->s, "refs/tags/best"), 2);
    assert_int_equal(ref_remove(f->s, REPO, TREE, REF_BRANCH, SLICE("good"), NULL), E_NOTFOUND);
    assert_int_equal(ref_remove(f->s, REPO, TREE, REF_TAG, SLICE("good"), NULL), 0);
    assert_int_equal(found(f->s, "good"), 0);
}

static int add_name(void *arg, const struct ref *r)
{
    buf_byte(arg, (uint8_t)r->kind);
    buf_adds(arg, r->name);
    buf_addf(arg, "=%d ", (int)r->seq);
    return 0;
}

static void test_lists(void **state)
{
    struct fixture *f = *state;
    struct buf out = BUF_INIT(1024);
    struct snap sn;

    assert_int_equal(publish(f->s, NULL, 0, 1, &sn), 0);
    assert_int_equal(create(f->s, REF_TAG, "a", 1), 0);
    assert_int_equal(create(f->s, REF_BRANCH, "z/y", 1), 0);
    assert_int_equal(create(f->s, REF_BRANCH, "b", 1), 0);
    assert_int_equal(ref_list(f->s, REPO, TREE, add_name, &out, NULL), 0);
    assert_string_equal(buf_cstr(&out), "bb=1 bz/y=1 ta=1 ");
    buf_clear(&out);
    assert_int_equal(ref_list(f->s, REPO, SLICE("me/gp"), add_name, &out, NULL), 0);
    assert_int_equal(out.n, 0);
    buf_free(&out);
}

static int set(struct store *s, const char *branch, uint64_t seq)
{
    struct batch *b = batch_new();
    int rc = branch_set(s, REPO, TREE, slice_str(branch), seq, b, NULL);

    rc = rc == 0 ? store_commit(s, &b, COMMIT_SYNC, NULL) : rc;
    batch_free(&b);
    return rc;
}

/* What a name stands on is kept; the rest may go, and histories lead around it. */
static void test_removal(void **state)
{
    struct fixture *f = *state;
    struct snap sn;

    for (uint8_t i = 1; i <= 4; i++) {
        assert_int_equal(publish(f->s, NULL, 0, i, &sn), 0);
    }
    assert_int_equal(create(f->s, REF_BRANCH, "dev", 2), 0);
    assert_int_equal(create(f->s, REF_TAG, "one", 1), 0);
    assert_int_equal(snap_remove(f->s, REPO, TREE, 2, NULL), E_BUSY);
    assert_int_equal(snap_remove(f->s, REPO, TREE, 1, NULL), E_BUSY);
    assert_int_equal(set(f->s, "dev", 9), E_NOTFOUND);
    assert_int_equal(set(f->s, "none", 1), E_NOTFOUND);
    assert_int_equal(set(f->s, "dev", 1), 0);
    assert_int_equal(snap_remove(f->s, REPO, TREE, 2, NULL), 0);
    assert_int_equal(snap_remove(f->s, REPO, TREE, 3, NULL), 0);
    assert_int_equal(snap_get(f->s, REPO, TREE, 4, &sn, NULL), 0);
    assert_int_equal(sn.parent_seq, 1);
}

/* Two hold the same head: the removal of a version, and a name for it. One of them is told. */
static void test_race(void **state)
{
    struct fixture *f = *state;
    struct batch *b = batch_new();
    struct snap sn;

    assert_int_equal(publish(f->s, NULL, 0, 1, &sn), 0);
    assert_int_equal(publish(f->s, NULL, 0, 2, &sn), 0);
    assert_int_equal(create(f->s, REF_BRANCH, "dev", 2), 0);
    assert_int_equal(branch_set(f->s, REPO, TREE, SLICE("dev"), 1, b, NULL), 0);
    assert_int_equal(snap_remove(f->s, REPO, TREE, 1, NULL), 0);
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), E_CHANGED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test_setup_teardown(test_branches_share_numbers, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_tags_stay, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_lists, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_removal, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_race, fixture_setup, fixture_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
