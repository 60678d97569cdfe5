#include "tests/harness/store.h"

#include "common/os/clock.h"
#include "server/store/atime.h"
#include "server/store/row.h"

enum { MB = 1 << 20 };

/* Makes the blob look sealed that long ago. */
static void age(struct store *s, const struct digest *d, uint64_t seconds)
{
    struct slice key = slice_of(d->b, DIGEST_BYTES);
    struct buf row = BUF_INIT(256);
    struct blob_row r;
    struct batch *b = batch_new();
    char old[BLOB_ROW_BYTES];

    assert_int_equal(store_get(s, TABLE_BLOB, key, &row, NULL), 0);
    assert_int_equal(blob_row_decode(buf_slice(&row), &r, NULL), 0);
    r.created_unix_s = clock_unix_s() - seconds;
    blob_row_encode(&r, old);
    batch_put(b, TABLE_BLOB, key, slice_of(old, sizeof old));
    assert_int_equal(store_commit(s, &b, COMMIT_LAZY, NULL), 0);
    buf_free(&row);
}

static struct digest old_object(struct fixture *f, uint64_t seed, size_t n, const char *repo,
                                const char *key, uint64_t hours)
{
    struct digest d = put_sample(f->s, seed, n, repo, key);

    age(f->s, &d, hours * 3600 + 120);
    return d;
}

static void set_quota(struct fixture *f, uint64_t bytes)
{
    f->set.quota_bytes = bytes;
    fixture_reopen(f);
}

struct forgotten {
    char keys[1024];
};

static void on_forget(void *arg, struct slice repo, struct slice key)
{
    struct forgotten *w = arg;
    size_t n = strlen(w->keys);

    snprintf(w->keys + n, sizeof w->keys - n, SLICE_FMT "/" SLICE_FMT " ", SLICE_ARG(repo),
             SLICE_ARG(key));
}

static void test_oldest_goes_first(void **state)
{
    struct fixture *f = *state;
    struct forgotten w = {""};
    struct evict_events ev = {on_forget, &w, NULL};
    struct digest d[10];
    struct store_space sp;
    uint64_t freed;

    for (size_t i = 0; i < ARRAY_LEN(d); i++) {
        char key[8];
        snprintf(key, sizeof key, "k%zu", i);
        d[i] = old_object(f, i, 5 * MB, "hf", key, 100 - i);
    }
    blob_touch(f->s, &d[0], clock_unix_s()); /* the oldest, but wanted just now */
    set_quota(f, 50 * MB);
    assert_true(evict_needed(f->s));
    assert_int_equal(evict_run(f->s, 0, &ev, &freed, NULL), 0);
    assert_int_equal(freed, 10 * MB);
    assert_false(evict_needed(f->s));
    assert_string_equal(w.keys, "hf/k1 hf/k2 ");
    assert_true(blob_is_there(f->s, &d[0]));
    assert_false(blob_is_there(f->s, &d[1]));
    assert_false(blob_file_is_there(f, &d[1]));
    store_space(f->s, &sp);
    assert_int_equal(sp.used_bytes, 40 * MB);
    assert_int_equal(evict_run(f->s, 20 * MB, &ev, &freed, NULL), 0); /* room for a known need */
    assert_int_equal(freed, 10 * MB);
    assert_int_equal(evict_run(f->s, 51 * MB, &ev, &freed, NULL), E_NOSPACE);
}

static void hold(struct store *s, const struct digest *d, char kind, const char *key)
{
    struct buf row = BUF_INIT(256);
    struct batch *b = batch_new();

    holder_key(&row, d, SLICE("models"), kind, slice_str(key));
    batch_put(b, TABLE_HOLDER, buf_slice(&row), SLICE_NONE);
    assert_int_equal(store_commit(s, &b, COMMIT_LAZY, NULL), 0);
    buf_free(&row);
}

static void on_gone(void *arg, const struct digest *d)
{
    *(struct digest *)arg = *d;
}

/* Of others only what was not used since that hour; what is one's own in its order, used or not. */
static void test_within_bounds(void **state)
{
    struct fixture *f = *state;
    struct digest own[] = {old_object(f, 1, 5 * MB, "hf", "own1", 1),
                           old_object(f, 2, 5 * MB, "hf", "own2", 9)};
    struct digest used = old_object(f, 3, 5 * MB, "hf", "used", 2);
    struct digest unused = old_object(f, 4, 5 * MB, "hf", "unused", 30);
    struct digest last;
    struct evict_events ev = {NULL, &last, on_gone};
    uint32_t hour = hour_of(clock_unix_s()) - 10;
    uint64_t freed, bytes;
    bool others;

    set_quota(f, 20 * MB); /* low: 17 */
    assert_int_equal(evict_measure(f->s, hour, 9 * MB, &bytes, NULL), 0);
    assert_int_equal(bytes, 5 * MB);
    assert_int_equal(
        evict_bounded(f->s, 2 * MB, &(struct evict_bounds){own, 2, 0}, &ev, &freed, &others, NULL),
        0);
    assert_int_equal(freed, 5 * MB);
    assert_true(digest_eq(&last, &own[0]) && blob_is_there(f->s, &own[1]));
    assert_int_equal(
        evict_bounded(f->s, 8 * MB, &(struct evict_bounds){own, 2, 0}, &ev, &freed, &others, NULL),
        E_NOSPACE);
    assert_int_equal(freed, 5 * MB);
    assert_int_equal(evict_bounded(f->s, 8 * MB, &(struct evict_bounds){NULL, 0, hour}, &ev, &freed,
                                   &others, NULL),
                     0);
    assert_true(digest_eq(&last, &unused) && blob_is_there(f->s, &used));
    assert_int_equal(evict_bounded(f->s, 16 * MB, &(struct evict_bounds){NULL, 0, hour}, &ev,
                                   &freed, &others, NULL),
                     E_NOSPACE);
    assert_true(others && blob_is_there(f->s, &used));
    hold(f->s, &used, 't', "me/gpt"); /* nothing that could go */
    assert_int_equal(evict_bounded(f->s, 16 * MB, &(struct evict_bounds){NULL, 0, hour}, &ev,
                                   &freed, &others, NULL),
                     E_NOSPACE);
    assert_false(others);
}

/* Everything that must stay, one that may go, and one that goes only because nothing older is
 * left. */
static void test_what_stays(void **state)
{
    struct fixture *f = *state;
    struct digest tree = old_object(f, 1, 5 * MB, "hf", "tree", 9);
    struct digest upload = old_object(f, 2, 5 * MB, "hf", "upload", 9);
    struct digest pinned = old_object(f, 3, 5 * MB, "pin", "a/b", 9);
    struct digest repo = old_object(f, 4, 5 * MB, "whole", "x", 9);
    struct digest held = put_sample(f->s, 5, 5 * MB, NULL, NULL);
    struct digest young = put_sample(f->s, 6, 5 * MB, "hf", "young");
    struct digest open = old_object(f, 7, 5 * MB, "hf", "sealing", 9);
    struct digest other = old_object(f, 8, 5 * MB, "pin", "ab", 9);
    struct digest named = old_object(f, 9, 5 * MB, "hf", "m/blobs/1", 9);
    const struct slice keys[] = {SLICE("m/blobs/2"), SLICE("m/blobs/1")};
    struct slice bytes = sample_bytes(7, 5 * MB);
    struct batch *sealing = batch_new();
    uint64_t freed;
    struct err e;

    age(f->s, &held, 3600);
    hold(f->s, &tree, 't', "me/gpt");
    hold(f->s, &upload, 'u', "17");
    assert_int_equal(pin_set(f->s, SLICE("pin/a/"), SLICE("me"), NULL), 0);
    assert_int_equal(pin_set(f->s, SLICE("whole"), SLICE("me"), NULL), 0);
    assert_int_equal(pin_set(f->s, SLICE("h"), SLICE("not a repo here"), NULL), 0);
    assert_int_equal(pin_set_keys(f->s, SLICE("hf/m@1"), SLICE("me"), keys, 2, NULL), 0);
    set_quota(f, 51 * MB);
    assert_int_equal(blob_put_bytes(f->s, bytes, sealing, NULL, NULL), 0);
    assert_int_equal(evict_run(f->s, 51 * MB, NULL, &freed, &e), E_NOSPACE);
    assert_int_equal(freed, 10 * MB);
    assert_false(blob_is_there(f->s, &other) || blob_is_there(f->s, &young));
    assert_true(blob_is_there(f->s, &tree) && blob_is_there(f->s, &upload) &&
                blob_is_there(f->s, &pinned) && blob_is_there(f->s, &repo) &&
                blob_is_there(f->s, &held) && blob_is_there(f->s, &open) &&
                blob_is_there(f->s, &named));
    batch_free(&sealing);
    assert_int_equal(pin_clear(f->s, SLICE("hf/m@1"), NULL), 0);
    assert_int_equal(pin_clear(f->s, SLICE("pin/a/"), NULL), 0);
    assert_int_equal(pin_clear(f->s, SLICE("pin/a/"), NULL), E_NOTFOUND);
    assert_int_equal(evict_run(f->s, 51 * MB, NULL, &freed, &e), E_NOSPACE);
    assert_false(blob_is_there(f->s, &named) || blob_is_there(f->s, &pinned) ||
                 blob_is_there(f->s, &open));
    assert_true(blob_is_there(f->s, &tree) && blob_is_there(f->s, &repo));
    free((char *)(uintptr_t)bytes.p);
}

/* Small blobs beyond their share go before large ones; within it they stay. */
static void test_two_pools(void **state)
{
    struct fixture *f = *state;
    struct digest small[20], large[10];
    uint64_t freed;
    size_t left = 0;

    for (size_t i = 0; i < ARRAY_LEN(small); i++) {
        char key[8];
        snprintf(key, sizeof key, "s%zu", i);
        small[i] = old_object(f, 100 + i, 100 << 10, "r", key, 1000); /* older than any large */
    }
    for (size_t i = 0; i < ARRAY_LEN(large); i++) {
        char key[8];
        snprintf(key, sizeof key, "l%zu", i);
        large[i] = old_object(f, 200 + i, 5 * MB, "r", key, 10);
    }
    set_quota(f, 52 * MB);
    assert_int_equal(evict_run(f->s, 0, NULL, &freed, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(small); i++) {
        left += blob_is_there(f->s, &small[i]);
    }
    assert_int_equal(left, ARRAY_LEN(small)); /* 2 MB of 52: within the share */
    left = 0;
    for (size_t i = 0; i < ARRAY_LEN(large); i++) {
        left += blob_is_there(f->s, &large[i]);
    }
    assert_int_equal(left, 8);
}

/* A reference to a blob that was found, then evicted, fails; before the eviction it keeps the
 * blob. */
static void test_reference_against_eviction(void **state)
{
    struct fixture *f = *state;
    struct digest d = old_object(f, 1, 5 * MB, "hf", "a", 9);
    struct buf key = BUF_INIT(256);
    struct batch *late = batch_new();
    uint64_t freed;

    holder_key(&key, &d, SLICE("models"), 't', SLICE("me/gpt"));
    batch_put(late, TABLE_HOLDER, buf_slice(&key), SLICE_NONE);
    batch_put(late, TABLE_META, SLICE("beside"), SLICE("1"));
    set_quota(f, 5 * MB);
    assert_int_equal(evict_run(f->s, 0, NULL, &freed, NULL), 0);
    assert_int_equal(store_commit(f->s, &late, COMMIT_SYNC, NULL), E_CHANGED);
    assert_int_equal(store_get(f->s, TABLE_META, SLICE("beside"), &key, NULL), E_NOTFOUND);
    buf_free(&key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)
        T(test_oldest_goes_first),
        T(test_within_bounds),
        T(test_what_stays),
        T(test_two_pools),
        T(test_reference_against_eviction),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
