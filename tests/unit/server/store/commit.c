#include "server/store/batch.h"
#include "tests/harness/store.h"

#include <event2/event.h>

#include "common/os/lock.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)
        T(test_preconditions),
        T(test_too_much_is_refused),
        T(test_producers),
        T(test_seals_and_removals),
        T(test_puts_that_change_nothing_are_taken_out),
        T(test_producers),
        T(test_seals_and_removals),
        T(test_async),
        T(test_holder_needs_blob),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
