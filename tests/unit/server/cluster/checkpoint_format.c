#include "server/cluster/checkpoint_format.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

struct lists {
    struct buf commits, parts;
};

static struct checkpoint_head some_head(struct lists *l)
{
    l->commits = BUF_INIT(4096);
    l->parts = BUF_INIT(4096);
    checkpoint_commit_write(&(struct log_entry_author){{1}, 77, 5}, &l->commits);
    checkpoint_commit_write(&(struct log_entry_author){{2}, 78, 9}, &l->commits);
    checkpoint_part_write(&(struct checkpoint_part){100, {{7}}}, &l->parts);
    return (struct checkpoint_head){.seq = 42,
                                    .own = {{9}},
                                    .rows = 3,
                                    .commits = buf_slice(&l->commits),
                                    .parts = buf_slice(&l->parts)};
}

static void free_lists(struct lists *l)
{
    buf_free(&l->commits);
    buf_free(&l->parts);
}

static void a_head_is_read_as_written(void **state)
{
    struct buf bytes = BUF_INIT(4096);
    struct lists l;
    struct checkpoint_head h = some_head(&l), got;
    struct log_entry_author a;
    struct checkpoint_part p;
    struct err e = {0};

    (void)state;
    assert_int_equal(checkpoint_head_write(&h, &bytes, &e), 0);
    assert_int_equal(checkpoint_head_read(buf_slice(&bytes), &got, &e), 0);
    assert_int_equal(got.seq, 42);
    assert_int_equal(got.rows, 3);
    assert_true(digest_eq(&got.own, &h.own));
    assert_true(checkpoint_commit_next(&got.commits, &a) && a.node[0] == 1 && a.boot == 77 &&
                a.counter == 5);
    assert_true(checkpoint_commit_next(&got.commits, &a) && a.node[0] == 2);
    assert_false(checkpoint_commit_next(&got.commits, &a));
    assert_true(checkpoint_part_next(&got.parts, &p) && p.size_bytes == 100 && p.digest.b[0] == 7);
    assert_false(checkpoint_part_next(&got.parts, &p));
    for (size_t i = 0; i < 8 * bytes.n; i++) { /* every bit counts */
        bytes.p[i / 8] = (char)(bytes.p[i / 8] ^ 1 << i % 8);
        assert_int_equal(checkpoint_head_read(buf_slice(&bytes), &got, &e), E_CORRUPT);
        bytes.p[i / 8] = (char)(bytes.p[i / 8] ^ 1 << i % 8);
    }
    for (size_t n = 0; n < bytes.n; n++) { /* and so does every byte that is missing */
        assert_int_equal(checkpoint_head_read(slice_of(bytes.p, n), &got, &e), E_CORRUPT);
    }
    buf_free(&bytes);
    free_lists(&l);
}

/* With a checksum that is right. */
static int read_sealed(struct buf *bytes, struct err *e)
{
    struct checkpoint_head got;
    struct digest d;
    int rc;

    bytes->n -= DIGEST_BYTES;
    digest_of(buf_slice(bytes), &d);
    buf_add(bytes, d.b, DIGEST_BYTES);
    rc = checkpoint_head_read(buf_slice(bytes), &got, e);
    return rc;
}

static void a_head_that_is_whole_may_still_be_wrong(void **state)
{
    enum { COMMITS_AT = 8 + 8 + DIGEST_BYTES + 8 };
    struct buf bytes = BUF_INIT(4096);
    struct lists l;
    struct checkpoint_head h = some_head(&l);
    struct err e = {0};

    (void)state;
    assert_int_equal(checkpoint_head_write(&h, &bytes, &e), 0);
    bytes.p[COMMITS_AT + 4] = 3; /* the nodes are not in order */
    assert_int_equal(read_sealed(&bytes, &e), E_CORRUPT);
    bytes.p[COMMITS_AT + 4] = 2; /* two are the same */
    assert_int_equal(read_sealed(&bytes, &e), E_CORRUPT);
    bytes.p[COMMITS_AT + 4] = 1;
    bytes.p[COMMITS_AT + 3] = 3; /* a commit that is not there */
    assert_int_equal(read_sealed(&bytes, &e), E_CORRUPT);
    bytes.p[COMMITS_AT + 3] = 2;
    bytes.p[COMMITS_AT + 4 + 2 * 32 + 4] = 1; /* a part of 2^56 bytes */
    assert_int_equal(read_sealed(&bytes, &e), E_CORRUPT);
    bytes.p[COMMITS_AT + 4 + 2 * 32 + 4] = 0;
    assert_int_equal(read_sealed(&bytes, &e), 0);
    bytes.p[7] = '2';
    assert_int_equal(read_sealed(&bytes, &e), E_UNSUPPORTED);
    h.commits = slice_first(h.commits, 63);
    assert_int_equal(checkpoint_head_write(&h, &bytes, &e), E_CORRUPT);
    buf_free(&bytes);
    free_lists(&l);
}

static int add_row(struct checkpoint_rows *rows, uint8_t table, const char *key, const char *value,
                   struct buf *part)
{
    struct checkpoint_row r = {table, slice_str(key), slice_str(value)};
    struct err e = {0};

    return checkpoint_row_write(rows, &r, part, &e);
}

static int on_row(void *arg, const struct checkpoint_row *r, struct err *e)
{
    struct buf *seen = arg;

    buf_addf(seen, "%u " SLICE_FMT "=" SLICE_FMT "\n", r->table, SLICE_ARG(r->key),
             SLICE_ARG(r->value));
    return slice_eqs(r->key, "stop") ? err_set(e, E_CANCELLED, "enough") : 0;
}

static void rows_are_in_order_over_all_parts(void **state)
{
    struct checkpoint_rows w = CHECKPOINT_ROWS_INIT, r = CHECKPOINT_ROWS_INIT;
    struct buf one = BUF_INIT(4096), two = BUF_INIT(4096), seen = BUF_INIT(4096);
    struct err e = {0};

    (void)state;
    assert_int_equal(add_row(&w, 1, "b", "1", &one), 0);
    assert_int_equal(add_row(&w, 1, "b", "2", &one), E_CORRUPT);
    assert_int_equal(add_row(&w, 1, "a", "2", &one), E_CORRUPT);
    assert_int_equal(add_row(&w, 0, "c", "2", &one), E_CORRUPT);
    assert_int_equal(add_row(&w, 1, "ba", "", &one), 0);
    assert_int_equal(add_row(&w, 2, "", "3", &two), 0);
    assert_int_equal(w.count, 3);
    assert_int_equal(checkpoint_rows_read(&r, buf_slice(&one), on_row, &seen, &e), 0);
    assert_int_equal(checkpoint_rows_read(&r, buf_slice(&two), on_row, &seen, &e), 0);
    assert_string_equal(buf_cstr(&seen), "1 b=1\n1 ba=\n2 =3\n");
    assert_int_equal(r.count, 3);
    assert_int_equal(checkpoint_rows_read(&r, buf_slice(&one), on_row, &seen, &e), E_CORRUPT);
    checkpoint_rows_free(&r);
    checkpoint_rows_free(&w);
    for (size_t n = 1; n < one.n; n++) { /* cut at any byte but the end of a row */
        struct checkpoint_rows cut = CHECKPOINT_ROWS_INIT;
        int rc = checkpoint_rows_read(&cut, slice_of(one.p, n), on_row, &seen, &e);
        assert_int_equal(rc, n == 9 ? 0 : E_CORRUPT);
        checkpoint_rows_free(&cut);
    }
    buf_free(&one);
    buf_free(&two);
    buf_free(&seen);
}

static void reading_can_be_ended(void **state)
{
    struct checkpoint_rows w = CHECKPOINT_ROWS_INIT, r = CHECKPOINT_ROWS_INIT;
    struct buf part = BUF_INIT(4096), seen = BUF_INIT(4096);
    struct err e = {0};

    (void)state;
    assert_int_equal(add_row(&w, 1, "stop", "1", &part), 0);
    assert_int_equal(add_row(&w, 1, "z", "2", &part), 0);
    assert_int_equal(checkpoint_rows_read(&r, buf_slice(&part), on_row, &seen, &e), E_CANCELLED);
    assert_string_equal(buf_cstr(&seen), "1 stop=1\n");
    checkpoint_rows_free(&r);
    checkpoint_rows_free(&w);
    buf_free(&part);
    buf_free(&seen);
}

static void a_part_has_a_limit(void **state)
{
    struct checkpoint_rows w = CHECKPOINT_ROWS_INIT;
    struct buf part = BUF_INIT(CHECKPOINT_PART_BYTES_MAX);
    char *big = mem_new(CHECKPOINT_PART_BYTES_MAX);
    struct checkpoint_row r = {1, SLICE("a"), slice_of(big, CHECKPOINT_PART_BYTES_MAX - 7)};
    struct err e = {0};

    (void)state;
    assert_int_equal(checkpoint_row_bytes(&r), CHECKPOINT_PART_BYTES_MAX + 1);
    assert_int_equal(checkpoint_row_write(&w, &r, &part, &e), E_TOOBIG);
    r.value.n--;
    assert_int_equal(checkpoint_row_write(&w, &r, &part, &e), 0);
    assert_int_equal(add_row(&w, 1, "b", "", &part), E_TOOBIG);
    checkpoint_rows_free(&w);
    buf_free(&part);
    free(big);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_is_read_as_written),
        cmocka_unit_test(a_head_that_is_whole_may_still_be_wrong),
        cmocka_unit_test(rows_are_in_order_over_all_parts),
        cmocka_unit_test(reading_can_be_ended),
        cmocka_unit_test(a_part_has_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
