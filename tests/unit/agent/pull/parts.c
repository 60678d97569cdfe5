#include "agent/pull/parts.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/harness/shelf.h"

enum { COUNT = 10 };
static const uint64_t size_bytes = (COUNT - 1) * PART_BYTES + 77;
static const struct digest key = {{1, 2, 3}};
static const struct digest none;

static struct parts *open_it(struct world *w, const struct digest *digest, uint64_t size,
                             const char *etag)
{
    struct parts *p;

    assert_int_equal(parts_open(w->shelf, &key, digest, size, etag, &p, NULL), 0);
    return p;
}

static void save(struct world *w, const struct parts *p)
{
    struct buf b = BUF_INIT(1 << 20);

    parts_snapshot(p, &b);
    assert_int_equal(parts_save(w->shelf, &key, p->fd, buf_slice(&b), NULL), 0);
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
    parts_close(&p);
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
    parts_close(&p);

    p = open_it(w, &key, size_bytes, "\"other\""); /* the digest says that it is the same */
    assert_int_equal(p->resumed, 2);
    assert_true(p->state[0] == PART_DONE && p->state[4] == PART_DONE &&
                p->state[6] == PART_MISSING);
    parts_close(&p);

    p = open_it(w, &none, size_bytes, "\"e\""); /* another object: begins anew */
    assert_int_equal(p->resumed, 0);
    parts_mark(p, 1, PART_DONE);
    save(w, p);
    parts_close(&p);
    p = open_it(w, &none, size_bytes, "\"e\"");
    assert_int_equal(p->resumed, 1);
    parts_close(&p);
    p = open_it(w, &none, size_bytes, "\"f\"");
    assert_int_equal(p->resumed, 0);
    parts_close(&p);
}

static void test_nothing_is_believed_without_an_etag_or_digest(void **state)
{
    struct world *w = *state;
    struct parts *p = open_it(w, &none, size_bytes, "");

    parts_mark(p, 0, PART_DONE);
    save(w, p);
    parts_close(&p);
    p = open_it(w, &none, size_bytes, "");
    assert_int_equal(p->resumed, 0);
    parts_close(&p);
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
    parts_close(&p);
    shelf_partial_path(w->shelf, &key, ".state", path);
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
        parts_close(&p);
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
    parts_close(&p);
    p = open_it(w, &key, size_bytes, "");
    assert_int_equal(p->resumed, 1);
    parts_close(&p);
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
    parts_discard(w->shelf, &p);
    p = open_it(w, &none, SIZE_UNKNOWN, "");
    parts_end(p, 0);
    assert_true(parts_complete(p));
    parts_close(&p);
}

/* --- the SHA-256 of the whole, as it grows --- */

struct followed {
    struct event_base *base;
    struct follow *follow;
    unsigned times;
};

static void moved(void *arg, int rc, const struct err *why)
{
    struct followed *f = arg;

    (void)why;
    assert_int_equal(rc, 0);
    f->times++;
    if (!follow_busy(f->follow)) {
        event_base_loopbreak(f->base);
    }
}

static void test_hashing_what_grows(void **state)
{
    struct world *w = *state;
    struct followed f = {.base = event_base_new()};
    struct mailbox *mail = mailbox_open(f.base);
    struct pool *pool = pool_open("test", 1, 0);
    struct digest got, want;
    char path[PATH_MAX];
    char bytes[1000];
    int fd;

    snprintf(path, sizeof path, "%s/grows", w->dir);
    fd = open(path, O_RDWR | O_CREAT, 0600);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (char)(i * 13);
    }
    f.follow = follow_new(pool, mail, fd, moved, &f);
    for (size_t end = 100; end <= sizeof bytes; end += 300) {
        assert_int_equal(pwrite(fd, bytes, end, 0), end);
        follow_to(f.follow, end);
        event_base_dispatch(f.base);
        assert_int_equal(follow_at(f.follow), end);
    }
    follow_to(f.follow, 5); /* is behind it: nothing to do */
    assert_false(follow_busy(f.follow));
    assert_int_equal(f.times, 4);
    follow_final(f.follow, &got);
    digest_of(slice_of(bytes, sizeof bytes), &want);
    assert_true(digest_eq(&got, &want));
    follow_free(&f.follow);
    pool_close(&pool);
    mailbox_close(&mail);
    event_base_free(f.base);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_counting, shelf_setup, shelf_teardown),
        cmocka_unit_test_setup_teardown(test_resume, shelf_setup, shelf_teardown),
        cmocka_unit_test_setup_teardown(test_nothing_is_believed_without_an_etag_or_digest,
                                        shelf_setup, shelf_teardown),
        cmocka_unit_test_setup_teardown(test_damaged_state, shelf_setup, shelf_teardown),
        cmocka_unit_test_setup_teardown(test_part_beyond_the_file_is_not_there, shelf_setup,
                                        shelf_teardown),
        cmocka_unit_test_setup_teardown(test_unknown_size, shelf_setup, shelf_teardown),
        cmocka_unit_test_setup_teardown(test_hashing_what_grows, shelf_setup, shelf_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
