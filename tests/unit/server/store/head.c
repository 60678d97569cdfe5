#include "tests/harness/store.h"

#include "server/store/tree.h"

#define REPO SLICE("models")
#define NAME SLICE("me/gpt")

static struct digest root_of(uint8_t n)
{
    struct digest d;

    memset(d.b, n, sizeof d.b);
    return d;
}

static int publish(struct store *s, uint8_t root, const struct digest *if_root, bool any,
                   struct snap *out)
{
    struct batch *b = batch_new();
    struct digest d = root_of(root);
    int rc = head_publish(s, REPO, NAME, &d, 1, 2, if_root, any, 1000, b, out, NULL);

    if (rc == 0) {
        return store_commit(s, &b, COMMIT_SYNC, NULL);
    }
    batch_free(&b);
    return rc;
}

static int roll_back(struct store *s, uint64_t seq)
{
    struct batch *b = batch_new();
    int rc = head_set(s, REPO, NAME, seq, b, NULL);

    rc = rc == 0 ? store_commit(s, &b, COMMIT_SYNC, NULL) : rc;
    batch_free(&b);
    return rc;
}

static void test_publish_and_roll_back(void **state)
{
    struct fixture *f = *state;
    struct digest one = root_of(1), two = root_of(2);
    struct snap sn, got;
    char hex[DIGEST_HEX + 1];

    assert_int_equal(head_get(f->s, REPO, NAME, &got, NULL), E_NOTFOUND);
    assert_int_equal(publish(f->s, 1, &two, false, &sn), E_CHANGED);
    assert_int_equal(publish(f->s, 1, NULL, false, &sn), 0);
    assert_int_equal(sn.seq, 1);
    assert_int_equal(publish(f->s, 2, NULL, false, &sn), E_CHANGED);
    assert_int_equal(publish(f->s, 2, &two, false, &sn), E_CHANGED);
    assert_int_equal(publish(f->s, 2, &one, false, &sn), 0);
    assert_int_equal(sn.seq, 2);
    assert_int_equal(sn.parent_seq, 1);
    assert_int_equal(roll_back(f->s, 9), E_NOTFOUND);
    assert_int_equal(roll_back(f->s, 1), 0);
    fixture_reopen(f);
    assert_int_equal(head_get(f->s, REPO, NAME, &got, NULL), 0);
    assert_true(digest_eq(&got.root, &one));
    assert_int_equal(publish(f->s, 3, NULL, true, &sn), 0);
    assert_int_equal(sn.seq, 3); /* a number is never used again */
    assert_int_equal(sn.parent_seq, 1);
    assert_int_equal(snap_find(f->s, REPO, NAME, SLICE("v2"), &got, NULL), 0);
    assert_true(digest_eq(&got.root, &two));
    digest_format(&one, hex);
    assert_int_equal(snap_find(f->s, REPO, NAME, slice_str(hex), &got, NULL), 0);
    assert_int_equal(got.seq, 1);
    assert_int_equal(snap_find(f->s, REPO, NAME, SLICE(""), &got, NULL), 0);
    assert_int_equal(got.seq, 3);
    assert_int_equal(snap_find(f->s, REPO, NAME, SLICE("v9"), &got, NULL), E_NOTFOUND);
    assert_int_equal(snap_find(f->s, REPO, NAME, SLICE("nightly"), &got, NULL), E_NOTFOUND);
    assert_int_equal(head_get(f->s, REPO, SLICE("a\0b"), &got, NULL), E_INVALID);
}

/* Both have seen the same head; one wins. */
static void test_race(void **state)
{
    struct fixture *f = *state;
    struct digest one = root_of(1), a = root_of(10), b = root_of(11);
    struct batch *x = batch_new(), *y = batch_new();
    struct snap sn, got;

    assert_int_equal(publish(f->s, 1, NULL, false, &sn), 0);
    assert_int_equal(head_publish(f->s, REPO, NAME, &a, 1, 1, &one, false, 5, x, &sn, NULL), 0);
    assert_int_equal(head_publish(f->s, REPO, NAME, &b, 1, 1, &one, false, 5, y, &sn, NULL), 0);
    assert_int_equal(store_commit(f->s, &y, COMMIT_SYNC, NULL), 0);
    assert_int_equal(store_commit(f->s, &x, COMMIT_SYNC, NULL), E_CHANGED);
    assert_int_equal(head_get(f->s, REPO, NAME, &got, NULL), 0);
    assert_true(digest_eq(&got.root, &b));
}

static int count_snap(void *arg, const struct snap *sn)
{
    uint64_t *last = arg;

    assert_true(*last == 0 || sn->seq == *last - 1); /* the newest first */
    *last = sn->seq;
    return 0;
}

static int count_head(void *arg, struct slice name, const struct snap *sn)
{
    assert_true(name.n == 1);
    assert_int_equal(sn->seq, 1);
    ++*(size_t *)arg;
    return 0;
}

static void test_lists(void **state)
{
    struct fixture *f = *state;
    struct snap sn;
    uint64_t last = 0;
    size_t heads = 0;

    for (uint8_t i = 1; i < 5; i++) {
        assert_int_equal(publish(f->s, i, NULL, true, &sn), 0);
    }
    assert_int_equal(snap_list(f->s, REPO, NAME, count_snap, &last, NULL), 0);
    assert_int_equal(last, 1);
    for (const char *repo = "xy"; *repo != '\0'; repo++) {
        for (const char *name = "abc"; *name != '\0'; name++) {
            struct batch *b = batch_new();
            struct digest d = root_of(1);
            assert_int_equal(head_publish(f->s, slice_of(repo, 1), slice_of(name, 1), &d, 0, 0,
                                          NULL, false, 1, b, &sn, NULL),
                             0);
            assert_int_equal(store_commit(f->s, &b, COMMIT_LAZY, NULL), 0);
        }
    }
    assert_int_equal(head_list(f->s, SLICE("x"), count_head, &heads, NULL), 0);
    assert_int_equal(heads, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_publish_and_roll_back, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(test_race, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_lists, fixture_setup, fixture_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
