#include "agent/pull/parts.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/harness/local_cache.h"

enum { COUNT = 10 };
static const uint64_t size_bytes = (COUNT - 1) * PART_BYTES + 77;
static const struct digest key = {{1, 2, 3}};
static const struct digest none;

static struct parts *open_it(struct world *w, const struct digest *digest, uint64_t size,
                             const char *etag)
{
    struct parts *p;

    assert_int_equal(parts_open(w->local_cache, &key, digest, size, etag, &p, NULL), 0);
    return p;
}

static void save(struct world *w, const struct parts *p)
{
    struct buf b = BUF_INIT(1 << 20);

    parts_snapshot(p, &b);
    assert_int_equal(parts_save(w->local_cache, &key, p->fd, buf_slice(&b), NULL), 0);
    buf_free(&b);
}

static void test_counting(void **state)
{
    struct world *w = *state;
    struct parts *p = open_it(w, &key, size_bytes, "");

    assert_int_equal(p->count, COUNT);
    assert_int_equal(parts_next(p), 0);
    parts_mark(p, 0, PART_BUSY);
    assert_int_equal(parts_next(p), 1);
    parts_mark(p, 1, PART_DONE);
    assert_int_equal(parts_prefix_bytes(p), 0);
    parts_mark(p, 0, PART_DONE);
    assert_int_equal(parts_prefix_bytes(p), 2 * PART_BYTES);
    parts_mark(p, COUNT - 1, PART_DONE);
    assert_int_equal(parts_done_bytes(p), 2 * PART_BYTES + 77);
    assert_int_equal(parts_length(p, COUNT - 1), 77);
    for (size_t i = 2; i < COUNT - 1; i++) {
        assert_false(parts_complete(p));
        parts_mark(p, i, PART_DONE);
    }
    assert_true(parts_complete(p));
    assert_int_equal(parts_prefix_bytes(p), size_bytes);
    parts_mark(p, 3, PART_MISSING);
    assert_int_equal(parts_next(p), 3);
    assert_int_equal(parts_prefix_bytes(p), 3 * PART_BYTES);
    parts_close(&p, NULL);
}

static void test_resume(void **state)
{
    struct world *w = *state;
    struct parts *p = open_it(w, &key, size_bytes, "\"e\"");

    parts_mark(p, 0, PART_DONE);
    parts_mark(p, 4, PART_DONE);
    parts_mark(p, 5, PART_BUSY);
    save(w, p);
    parts_mark(p, 6, PART_DONE); /* not saved any more */
    parts_close(&p, NULL);

    p = open_it(w, &key, size_bytes, "\"other\""); /* the digest says that it is the same */
    assert_int_equal(p->resumed, 2);
    assert_true(p->state[0] == PART_DONE && p->state[4] == PART_DONE &&
                p->state[6] == PART_MISSING);
    parts_close(&p, NULL);

    p = open_it(w, &none, size_bytes, "\"e\""); /* another object: begins anew */
    assert_int_equal(p->resumed, 0);
    parts_mark(p, 1, PART_DONE);
    save(w, p);
    parts_close(&p, NULL);
    p = open_it(w, &none, size_bytes, "\"e\"");
    assert_int_equal(p->resumed, 1);
    parts_close(&p, NULL);
    p = open_it(w, &none, size_bytes, "\"f\"");
    assert_int_equal(p->resumed, 0);
    parts_close(&p, NULL);
}

static void test_nothing_is_believed_without_an_etag_or_digest(void **state)
{
    struct world *w = *state;
    struct parts *p = open_it(w, &none, size_bytes, "");

    parts_mark(p, 0, PART_DONE);
    save(w, p);
    parts_close(&p, NULL);
    p = open_it(w, &none, size_bytes, "");
    assert_int_equal(p->resumed, 0);
    parts_close(&p, NULL);
}

/* Every flipped byte and every cut of .state means: begin anew. */
static void test_damaged_state(void **state)
{
    struct world *w = *state;
    struct parts *p = open_it(w, &key, size_bytes, "\"e\"");
    struct buf good = BUF_INIT(1 << 20);
    char path[PATH_MAX];

    parts_mark(p, 0, PART_DONE);
    parts_snapshot(p, &good);
    parts_close(&p, NULL);
    local_cache_partial_path(w->local_cache, &key, ".state", path);
    for (size_t i = 0; i < 2 * good.n; i++) {
        FILE *f = fopen(path, "w");
        size_t n = i < good.n ? good.n : i - good.n;
        assert_non_null(f);
        for (size_t k = 0; k < n; k++) {
            fputc(i == k ? good.p[k] ^ 1 : good.p[k], f);
        }
        fclose(f);
        p = open_it(w, &key, size_bytes, "\"e\"");
        assert_int_equal(p->resumed, 0);
        parts_close(&p, NULL);
    }
    buf_free(&good);
}

static void test_part_beyond_the_file_is_not_there(void **state)
{
    struct world *w = *state;
    struct parts *p = open_it(w, &key, size_bytes, "");

    parts_mark(p, 0, PART_DONE);
    parts_mark(p, 7, PART_DONE);
    save(w, p);
    assert_int_equal(ftruncate(p->fd, (off_t)(2 * PART_BYTES)), 0);
    parts_close(&p, NULL);
    p = open_it(w, &key, size_bytes, "");
    assert_int_equal(p->resumed, 1);
    parts_close(&p, NULL);
}

static void test_unknown_size(void **state)
{
    struct world *w = *state;
    struct parts *p = open_it(w, &none, SIZE_UNKNOWN, "");

    assert_int_equal(p->count, 0);
    assert_false(parts_complete(p));
    parts_mark(p, 0, PART_DONE);
    parts_mark(p, 1, PART_BUSY);
    parts_end(p, PART_BYTES + 5);
    assert_false(parts_complete(p));
    parts_mark(p, 1, PART_DONE);
    assert_true(parts_complete(p));
    assert_int_equal(parts_done_bytes(p), PART_BYTES + 5);
    parts_close(&p, w->local_cache);
    p = open_it(w, &none, SIZE_UNKNOWN, "");
    parts_end(p, 0);
    assert_true(parts_complete(p));
    parts_close(&p, NULL);
}

/* --- the SHA-256 of the whole, as it grows --- */

struct hashing {
    struct event_base *base;
    struct parts *parts;
    unsigned times;
};

static void moved(void *arg, int rc, const struct err *why)
{
    struct hashing *h = arg;

    (void)why;
    assert_int_equal(rc, 0);
    h->times++;
    if (!parts_is_hashing(h->parts)) {
        event_base_loopbreak(h->base);
    }
}

static void mark_and_wait(struct hashing *h, size_t i)
{
    parts_mark(h->parts, i, PART_DONE);
    if (parts_is_hashing(h->parts)) {
        event_base_dispatch(h->base);
    }
}

static void test_hashing_what_grows(void **state)
{
    enum { ALL = PART_BYTES + 1000 };
    struct world *w = *state;
    struct hashing h = {.base = event_base_new(), .parts = open_it(w, &key, ALL, "")};
    struct message_queue *mail = message_queue_open(h.base);
    struct pool *pool = pool_open("test", 1, 0);
    char *bytes = mem_new(ALL);
    struct digest got, want;

    for (size_t i = 0; i < ALL; i++) {
        bytes[i] = (char)(i * 13 + i / 999);
    }
    digest_of(slice_of(bytes, ALL), &want);
    assert_int_equal(pwrite(h.parts->fd, bytes, ALL, 0), ALL);
    parts_hash(h.parts, pool, mail, moved, &h);
    mark_and_wait(&h, 1); /* there is a gap before it */
    assert_int_equal(h.times, 0);
    assert_false(parts_digest(h.parts, &got));
    mark_and_wait(&h, 0);
    assert_true(parts_digest(h.parts, &got));
    assert_true(digest_eq(&got, &want));
    /* Another first byte: hashed again, from the start. */
    bytes[0] = 'x';
    assert_int_equal(pwrite(h.parts->fd, "x", 1, 0), 1);
    digest_of(slice_of(bytes, ALL), &want);
    parts_hash(h.parts, pool, mail, moved, &h);
    event_base_dispatch(h.base);
    assert_true(parts_digest(h.parts, &got));
    assert_true(digest_eq(&got, &want));
    parts_close(&h.parts, w->local_cache);
    pool_close(&pool);
    message_queue_close(&mail);
    event_base_free(h.base);
    free(bytes);
}

static void test_one_part_that_was_hashed_where_it_came(void **state)
{
    struct world *w = *state;
    struct parts *p = open_it(w, &key, 3, "");
    struct digest d, got;

    digest_of(SLICE("abc"), &d);
    assert_false(parts_digest(p, &got));
    parts_hashed(p, &d);
    parts_mark(p, 0, PART_DONE);
    assert_false(parts_is_hashing(p));
    assert_true(parts_digest(p, &got));
    assert_true(digest_eq(&got, &d));
    parts_close(&p, w->local_cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_counting, local_cache_setup, local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_resume, local_cache_setup, local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_nothing_is_believed_without_an_etag_or_digest,
                                        local_cache_setup, local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_damaged_state, local_cache_setup,
                                        local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_part_beyond_the_file_is_not_there, local_cache_setup,
                                        local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_unknown_size, local_cache_setup, local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_hashing_what_grows, local_cache_setup,
                                        local_cache_teardown),
        cmocka_unit_test_setup_teardown(test_one_part_that_was_hashed_where_it_came,
                                        local_cache_setup, local_cache_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
