/* Who holds a digest: all of them in order, those of one repo and kind, and a few among many
 * without a look at each. */
#include "tests/harness/store.h"

#include "server/store/keep.h"

enum { MANY = 200 };

struct seen {
    unsigned calls;
    unsigned stop_at;
    const char *to; /* written at each call; NULL: no skip */
    char last[64];
};

static void hold(struct store *s, const struct digest *d, const char *repo, char kind,
                 const char *name)
{
    struct batch *b = batch_new();
    struct buf key = BUF_INIT(256);

    holder_key(&key, d, slice_str(repo), kind, slice_str(name));
    batch_put(b, TABLE_HOLDER, buf_slice(&key), SLICE_NONE);
    assert_int_equal(store_commit(s, &b, COMMIT_LAZY, NULL), 0);
    buf_free(&key);
}

static int on_jump(void *arg, struct slice repo, char kind, struct slice key, struct buf *to)
{
    struct seen *n = arg;

    n->calls++;
    snprintf(n->last, sizeof n->last, SLICE_FMT " %c" SLICE_FMT, SLICE_ARG(repo), kind,
             SLICE_ARG(key));
    if (n->calls == n->stop_at) {
        return 7;
    }
    if (n->to == NULL) {
        return 0;
    }
    if (slice_eqs(repo, "big")) {
        buf_str(to, kind == 't' && slice_cmp(key, slice_str(n->to + 1)) < 0 ? n->to : "");
        return HOLDER_SKIP;
    }
    return 0;
}

static int on_each(void *arg, struct slice repo, char kind, struct slice key)
{
    return on_jump(arg, repo, kind, key, NULL);
}

static void fill(struct store *s, const struct digest *d, const struct digest *other)
{
    char name[32];

    hold(s, d, "a", 't', "me/x");
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "me/%03d", i);
        hold(s, d, "big", 't', name);
    }
    hold(s, d, "big", 'u', "0123");
    hold(s, d, "bigger", 'o', "k");
    hold(s, other, "big", 't', "me/of-another");
}

static void test_holders(void **state)
{
    struct fixture *f = *state;
    struct digest d = put_sample(f->s, 1, 500, NULL, NULL);
    struct digest other = put_sample(f->s, 2, 500, NULL, NULL);
    struct seen n = {0};

    fill(f->s, &d, &other);
    assert_int_equal(holder_each(f->s, &d, on_each, &n, NULL), 0);
    assert_int_equal(n.calls, MANY + 3);
    assert_string_equal(n.last, "bigger ok");

    n = (struct seen){0};
    assert_int_equal(holder_each_of(f->s, &d, SLICE("big"), 'u', on_each, &n, NULL), 0);
    assert_int_equal(n.calls, 1);
    assert_string_equal(n.last, "big u0123");
    assert_int_equal(holder_each_of(f->s, &d, SLICE("big"), 's', on_each, &n, NULL), 0);
    assert_int_equal(n.calls, 1);

    n = (struct seen){.stop_at = 3};
    assert_int_equal(holder_seek(f->s, &d, on_jump, &n, NULL), 7);
    assert_string_equal(n.last, "big tme/001");
    n = (struct seen){0};
    assert_int_equal(holder_seek(f->s, &d, on_jump, &n, NULL), 0);
    assert_int_equal(n.calls, MANY + 3);
}

static void test_passing_over(void **state)
{
    struct fixture *f = *state;
    struct digest d = put_sample(f->s, 1, 500, NULL, NULL);
    struct digest other = put_sample(f->s, 2, 500, NULL, NULL);
    struct seen n = {.to = "t"}; /* nothing is before it: the next repo at once */

    fill(f->s, &d, &other);
    assert_int_equal(holder_seek(f->s, &d, on_jump, &n, NULL), 0);
    assert_int_equal(n.calls, 3);
    assert_string_equal(n.last, "bigger ok");

    n = (struct seen){.to = "tme/150", .stop_at = 3};
    assert_int_equal(holder_seek(f->s, &d, on_jump, &n, NULL), 7);
    assert_string_equal(n.last, "big tme/150");

    n = (struct seen){.to = "tme/0025", .stop_at = 3}; /* between two, a few steps away */
    assert_int_equal(holder_seek(f->s, &d, on_jump, &n, NULL), 7);
    assert_string_equal(n.last, "big tme/003");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_holders, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(test_passing_over, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
