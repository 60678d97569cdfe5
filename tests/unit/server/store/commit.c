#include "server/store/batch.h"
#include "tests/harness/store.h"

#include <event2/event.h>

#include "common/os/lock.h"
#include "server/store/drop.h"

static void put_number(struct batch *b, struct slice key, uint64_t n)
{
    char text[24];
    int len = snprintf(text, sizeof text, "%llu", (unsigned long long)n);

    batch_put(b, TABLE_TOKEN, key, slice_of(text, (size_t)len));
}

static uint64_t get_number(struct store *s, struct slice key)
{
    struct buf v = BUF_INIT(64);
    uint64_t n = 0;
    int rc = store_get(s, TABLE_TOKEN, key, &v, NULL);

    assert_true(rc == E_NOTFOUND || (rc == 0 && slice_u64(buf_slice(&v), &n)));
    buf_free(&v);
    return n;
}

static void test_preconditions(void **state)
{
    struct fixture *f = *state;
    struct batch *b = batch_new();
    struct err e = {0};

    put_number(b, SLICE("k"), 1);
    batch_require_absent(b, TABLE_TOKEN, SLICE("k"));
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, &e), 0);
    assert_null(b);
    b = batch_new();
    put_number(b, SLICE("k"), 2);
    put_number(b, SLICE("beside"), 2);
    batch_require_absent(b, TABLE_TOKEN, SLICE("k"));
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, &e), E_CHANGED);
    assert_string_not_equal(e.text, "");
    b = batch_new();
    put_number(b, SLICE("k"), 2);
    batch_require_value(b, TABLE_TOKEN, SLICE("k"), SLICE("7"));
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), E_CHANGED);
    b = batch_new();
    batch_require_value(b, TABLE_TOKEN, SLICE("none"), SLICE(""));
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), E_CHANGED);
    b = batch_new();
    put_number(b, SLICE("k"), 3);
    batch_require_value(b, TABLE_TOKEN, SLICE("k"), SLICE("1"));
    batch_require_absent(b, TABLE_TOKEN, SLICE("none"));
    assert_int_equal(store_commit(f->s, &b, COMMIT_LAZY, NULL), 0);
    assert_int_equal(get_number(f->s, SLICE("k")), 3);
    assert_int_equal(get_number(f->s, SLICE("beside")), 0);
    b = batch_new();
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0); /* an empty one */
}

/* A batch with less than was put into it: nothing of it is written, sifted or not. */
static void test_too_much_is_refused(void **state)
{
    struct fixture *f = *state;

    for (unsigned sifted = 0; sifted < 2; sifted++) {
        struct batch *b = batch_new();
        struct err e = {0};
        bool replaces = true;

        b->steps.max = 1000;
        put_number(b, SLICE("first"), 1);
        for (unsigned i = 0; i < 100; i++) {
            put_number(b, SLICE("many"), i);
        }
        if (sifted != 0) {
            assert_false(batch_prune(b, f->s, &replaces));
            assert_false(replaces);
        }
        assert_int_equal(store_commit(f->s, &b, COMMIT_LAZY, &e), E_TOOBIG);
        assert_null(b);
        assert_string_not_equal(e.text, "");
        assert_int_equal(get_number(f->s, SLICE("first")), 0);
    }
}

static void test_puts_that_change_nothing_are_taken_out(void **state)
{
    struct fixture *f = *state;
    struct batch *b = batch_new();
    bool replaces;

    put_number(b, SLICE("same"), 1);
    put_number(b, SLICE("other"), 1);
    assert_false(batch_prune(b, f->s, &replaces));
    assert_false(replaces);
    assert_int_equal(store_commit(f->s, &b, COMMIT_LAZY, NULL), 0);
    b = batch_new();
    put_number(b, SLICE("same"), 1);
    assert_true(batch_prune(b, f->s, &replaces));
    assert_false(replaces);
    put_number(b, SLICE("other"), 2);
    put_number(b, SLICE("same"), 1);
    batch_del(b, TABLE_TOKEN, SLICE("none"));
    assert_false(batch_prune(b, f->s, &replaces));
    assert_true(replaces);
    assert_int_equal(store_commit(f->s, &b, COMMIT_LAZY, NULL), 0);
    assert_int_equal(get_number(f->s, SLICE("same")), 1);
    assert_int_equal(get_number(f->s, SLICE("other")), 2);
}

enum { PRODUCERS = 8, ADDS = 100 };

struct producer {
    struct store *s;
    pthread_t thread;
    unsigned lost; /* races */
};

/* The one way to read, change and write: a precondition on what was read. */
static void *add_many(void *arg)
{
    struct producer *p = arg;

    for (int done = 0; done < ADDS;) {
        uint64_t n = get_number(p->s, SLICE("sum"));
        struct batch *b = batch_new();
        char old[24];
        int len = snprintf(old, sizeof old, "%llu", (unsigned long long)n);
        int rc;

        if (n == 0) {
            batch_require_absent(b, TABLE_TOKEN, SLICE("sum"));
        } else {
            batch_require_value(b, TABLE_TOKEN, SLICE("sum"), slice_of(old, (size_t)len));
        }
        put_number(b, SLICE("sum"), n + 1);
        rc = store_commit(p->s, &b, COMMIT_LAZY, NULL);
        CHECK(rc == 0 || rc == E_CHANGED);
        done += rc == 0;
        p->lost += rc != 0;
    }
    return NULL;
}

static void test_producers(void **state)
{
    struct fixture *f = *state;
    struct producer p[PRODUCERS];

    for (size_t i = 0; i < PRODUCERS; i++) {
        p[i] = (struct producer){.s = f->s};
        p[i].thread = thread_start("producer", add_many, &p[i]);
    }
    for (size_t i = 0; i < PRODUCERS; i++) {
        pthread_join(p[i].thread, NULL);
    }
    assert_int_equal(get_number(f->s, SLICE("sum")), PRODUCERS * ADDS);
}

struct sealer {
    struct store *s;
    pthread_t thread;
    uint64_t seed;
};

/* All seal the same few digests; each batch is committed, fails, or is given up. */
static void *seal_many(void *arg)
{
    struct sealer *p = arg;

    for (uint64_t i = 0; i < 24; i++) {
        struct slice bytes = sample_bytes(i % 4, 40000);
        struct batch *b = batch_new();
        int rc = blob_put_bytes(p->s, bytes, b, NULL, NULL);

        CHECK(rc == 0);
        if ((i + p->seed) % 3 == 0) {
            batch_require_value(b, TABLE_META, SLICE("never"), SLICE(""));
            CHECK(store_commit(p->s, &b, COMMIT_SYNC, NULL) == E_CHANGED);
        } else if ((i + p->seed) % 3 == 1) {
            batch_free(&b);
        } else {
            CHECK(store_commit(p->s, &b, COMMIT_LAZY, NULL) == 0);
        }
        free((char *)(uintptr_t)bytes.p);
    }
    return NULL;
}

/* And one that takes them away again. */
static void *remove_many(void *arg)
{
    struct sealer *p = arg;

    for (uint64_t i = 0; i < 40; i++) {
        struct slice bytes = sample_bytes(i % 4, 40000);
        struct batch *b = batch_new();
        struct digest d;

        digest_of(bytes, &d);
        batch_del(b, TABLE_BLOB, slice_of(d.b, DIGEST_BYTES));
        batch_after(b, AFTER_UNLINK, &d, 0);
        CHECK(store_commit(p->s, &b, COMMIT_SYNC, NULL) == 0);
        free((char *)(uintptr_t)bytes.p);
    }
    return NULL;
}

static void test_seals_and_removals(void **state)
{
    struct fixture *f = *state;
    struct sealer p[5];
    struct verify_report r;
    struct store_space sp;

    for (size_t i = 0; i < ARRAY_LEN(p); i++) {
        p[i] = (struct sealer){.s = f->s, .seed = i};
        p[i].thread = thread_start("sealer", i == 0 ? remove_many : seal_many, &p[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(p); i++) {
        pthread_join(p[i].thread, NULL);
    }
    assert_int_equal(verify_run(f->s, true, false, NULL, NULL, NULL, &r, NULL), 0);
    assert_int_equal(r.damaged + r.missing + r.orphans + r.bad_rows, 0);
    for (uint64_t i = 0; i < 4; i++) { /* a row and its file, or neither */
        struct slice bytes = sample_bytes(i, 40000);
        struct digest d;
        digest_of(bytes, &d);
        assert_int_equal(blob_is_there(f->s, &d), blob_file_is_there(f, &d));
        free((char *)(uintptr_t)bytes.p);
    }
    store_space(f->s, &sp);
    assert_int_equal(sp.staged_bytes, 0);
}

struct answers {
    struct commit_wait w[20];
    struct event_base *base;
    unsigned ok, changed;
};

static struct answers *answers; /* commit_wait carries no argument of the caller's */

static void on_commit(struct commit_wait *w, int rc, const struct err *e)
{
    (void)w;
    answers->ok += rc == 0;
    answers->changed += rc == E_CHANGED && e->code == E_CHANGED;
    if (answers->ok + answers->changed == ARRAY_LEN(answers->w)) {
        event_base_loopbreak(answers->base);
    }
}

static void test_async(void **state)
{
    struct fixture *f = *state;
    struct answers a = {.base = event_base_new()};
    struct message_queue *box = message_queue_open(a.base);

    answers = &a;
    for (size_t i = 0; i < ARRAY_LEN(a.w); i++) {
        struct batch *b = batch_new();
        put_number(b, SLICE("first"), i + 1);
        batch_require_absent(b, TABLE_TOKEN, SLICE("first"));
        a.w[i] = (struct commit_wait){.done = on_commit, .reply = box};
        store_commit_async(f->s, &b, COMMIT_SYNC, &a.w[i]);
        assert_null(b);
    }
    event_base_dispatch(a.base);
    assert_int_equal(a.ok, 1); /* the group sees what its earlier batches put */
    assert_int_equal(get_number(f->s, SLICE("first")), 1);
    message_queue_close(&box);
    event_base_free(a.base);
}

static void test_holder_needs_blob(void **state)
{
    struct fixture *f = *state;
    struct slice bytes = SLICE("hello");
    struct buf key = BUF_INIT(256);
    struct batch *b = batch_new();
    struct digest d;

    digest_of(bytes, &d);
    holder_key(&key, &d, SLICE("r"), 'o', SLICE("k"));
    batch_put(b, TABLE_HOLDER, buf_slice(&key), SLICE_NONE);
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), E_CHANGED);
    b = batch_new();
    batch_put(b, TABLE_HOLDER, buf_slice(&key), SLICE_NONE); /* before the blob, in one batch */
    assert_int_equal(blob_put_bytes(f->s, bytes, b, NULL, NULL), 0);
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    b = batch_new();
    batch_put(b, TABLE_HOLDER, SLICE("short"), SLICE_NONE);
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), E_INVALID);
    buf_free(&key);
}

/* --- with a sequencer --- */

struct submitted {
    struct store *s;
    unsigned count;
    int rc; /* of each */
};

static void on_submit(void *arg, struct commit_wait *w)
{
    static const struct err why = {E_AGAIN, "not now"};
    struct submitted *x = arg;

    x->count++;
    batch_free(&w->batch);
    store_answer(x->s, w, x->rc, &why);
}

static void test_only_shared_rows_are_sequenced(void **state)
{
    struct fixture *f = *state;
    struct submitted x = {.s = f->s, .rc = E_AGAIN};
    struct sequencer q = {on_submit, &x};
    struct err e = {0};
    struct batch *b = batch_new();

    store_set_sequencer(f->s, &q);
    batch_put(b, TABLE_META, SLICE("own"), SLICE("1"));
    batch_require_absent(b, TABLE_TOKEN, SLICE("k"));
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, &e), 0);
    assert_int_equal(x.count, 0);
    b = batch_new();
    batch_del(b, TABLE_TOKEN, SLICE("k"));
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, &e), E_AGAIN);
    assert_string_equal(e.text, "not now");
    assert_null(b);
    x.rc = 0;
    b = batch_new();
    put_number(b, SLICE("k"), 1);
    assert_int_equal(store_commit(f->s, &b, COMMIT_LAZY, &e), 0);
    assert_int_equal(x.count, 2);
    assert_int_equal(get_number(f->s, SLICE("k")), 0); /* the sequencer applies */
    store_set_sequencer(f->s, NULL);
}

/* Publishes k = n, and holds the blob in a row of this node. */
static struct batch *publish_batch(uint64_t n, const struct digest *held)
{
    struct batch *b = batch_new();
    struct buf key = BUF_INIT(256);

    put_number(b, SLICE("k"), n);
    batch_require_absent(b, TABLE_TOKEN, SLICE("k"));
    holder_key(&key, held, SLICE("r"), 'o', SLICE("k"));
    batch_put(b, TABLE_HOLDER, buf_slice(&key), SLICE_NONE);
    buf_free(&key);
    return b;
}

static struct batch *position_batch(uint64_t n)
{
    struct batch *b = batch_new();

    put_number(b, SLICE("position"), n);
    return b;
}

static struct digest sealed_blob(struct fixture *f)
{
    struct slice bytes = SLICE("hello");
    struct batch *b = batch_new();
    struct digest d;

    digest_of(bytes, &d);
    assert_int_equal(blob_put_bytes(f->s, bytes, b, NULL, NULL), 0);
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    return d;
}

static unsigned holders(struct fixture *f, const struct digest *d)
{
    struct drop x;
    unsigned n = 0;

    if (drop_look(f->s, d, &x, NULL) == 0) {
        n = (unsigned)x.objects;
    }
    drop_free(&x);
    return n;
}

static void test_judging_changes_nothing(void **state)
{
    struct fixture *f = *state;
    struct digest there = sealed_blob(f), gone = {{1}};
    struct batch *b[3] = {publish_batch(1, &there), publish_batch(2, &there),
                          publish_batch(3, &gone)};
    struct err why[3] = {{0}, {0}, {0}};
    int rc[3];

    store_judge(f->s, b, 3, rc, why); /* each alone */
    assert_int_equal(rc[0], 0);
    assert_int_equal(rc[1], 0);
    assert_int_equal(rc[2], E_CHANGED);
    assert_string_not_equal(why[2].text, "");
    assert_int_equal(get_number(f->s, SLICE("k")), 0);
    assert_int_equal(holders(f, &there), 0);
    for (unsigned i = 0; i < 3; i++) {
        batch_free(&b[i]);
    }
}

static void test_an_entry_counts_whatever_became_of_own_rows(void **state)
{
    struct fixture *f = *state;
    struct digest there = sealed_blob(f), gone = {{1}};
    struct batch *own[2] = {batch_new(), publish_batch(2, &gone)}, *entry = position_batch(1);
    struct buf key = BUF_INIT(256);

    put_number(own[0], SLICE("j"), 1);
    holder_key(&key, &there, SLICE("r"), 'o', SLICE("k"));
    batch_put(own[0], TABLE_HOLDER, buf_slice(&key), SLICE_NONE);
    assert_int_equal(store_apply(f->s, &entry, own, 2, NULL), 0);
    assert_null(entry);
    assert_int_equal(get_number(f->s, SLICE("j")), 1);
    assert_int_equal(get_number(f->s, SLICE("k")), 2);
    assert_int_equal(get_number(f->s, SLICE("position")), 1);
    assert_int_equal(holders(f, &there), 1);
    assert_true(own[0]->committed && own[1]->committed);
    buf_free(&key);
    batch_free(&own[0]);
    batch_free(&own[1]);
}

static void test_an_entry_is_all_or_nothing(void **state)
{
    struct fixture *f = *state;
    struct digest there = sealed_blob(f);
    struct batch *own[2] = {batch_new(), publish_batch(2, &there)}, *entry = position_batch(1), *b;

    put_number(own[0], SLICE("j"), 1);
    b = position_batch(7);
    put_number(b, SLICE("k"), 7);
    assert_int_equal(store_apply(f->s, &b, NULL, 0, NULL), 0);
    assert_int_equal(store_apply(f->s, &entry, own, 2, NULL), E_CHANGED); /* k is there */
    assert_int_equal(get_number(f->s, SLICE("j")), 0);
    assert_int_equal(get_number(f->s, SLICE("position")), 7);
    assert_int_equal(holders(f, &there), 0);
    b = batch_new();
    batch_del(b, TABLE_TOKEN, SLICE("k"));
    assert_int_equal(store_commit(f->s, &b, COMMIT_SYNC, NULL), 0);
    entry = position_batch(8);
    assert_int_equal(store_apply(f->s, &entry, own, 2, NULL), 0); /* they can be tried again */
    assert_int_equal(get_number(f->s, SLICE("j")), 1);
    assert_int_equal(holders(f, &there), 1);
    batch_free(&own[0]);
    batch_free(&own[1]);
}

static bool has(struct store *s, enum table t, struct slice key)
{
    struct buf v = BUF_INIT(256);
    int rc = store_get(s, t, key, &v, NULL);

    buf_free(&v);
    return rc == 0;
}

/* An eviction between store_judge() and store_apply() takes a blob that the batch holds.
 * Then all steps on rows of this node are left out: also the nodes of the tree that is published,
 * their places, and the row of a blob that the batch seals. The tree cannot be read on the mirror
 * that has published it, and a later publish stands on it. */
static void test_what_an_entry_names_is_there_whatever_was_evicted(void **state)
{
    struct fixture *f = *state;
    struct digest gone = {{1}};
    struct batch *own = publish_batch(2, &gone), *entry = position_batch(1);

    batch_put(own, TABLE_NODE, SLICE("a node's digest"), SLICE("a node"));
    batch_put(own, TABLE_PLACE, SLICE("a node's digest"), SLICE("a place"));
    assert_int_equal(store_apply(f->s, &entry, &own, 1, NULL), 0);
    assert_int_equal(get_number(f->s, SLICE("k")), 2);
    assert_true(has(f->s, TABLE_NODE, SLICE("a node's digest")));
    assert_true(has(f->s, TABLE_PLACE, SLICE("a node's digest")));
    batch_free(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)
        T(test_preconditions),
        T(test_too_much_is_refused),
        T(test_producers),
        T(test_seals_and_removals),
        T(test_puts_that_change_nothing_are_taken_out),
        T(test_async),
        T(test_holder_needs_blob),
        T(test_only_shared_rows_are_sequenced),
        T(test_judging_changes_nothing),
        T(test_an_entry_counts_whatever_became_of_own_rows),
        T(test_an_entry_is_all_or_nothing),
        T(test_what_an_entry_names_is_there_whatever_was_evicted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
