#include "server/cluster/log_entry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

static const struct log_entry_author author = {{1, 2, 3}, 77, 5};

struct made {
    struct buf bytes;
    struct digest own;
};

static int make(uint64_t seq, const struct slice *batch, size_t n, struct made *m, struct err *e)
{
    struct digest before = {{9}};

    m->bytes = BUF_INIT(LOG_ENTRY_BYTES_MAX);
    return log_entry_write(seq, &before, &author, batch, n, &m->bytes, &m->own, e);
}

static void what_is_written_is_read(void **state)
{
    struct buf one = BUF_INIT(4096), two = BUF_INIT(4096);
    struct slice batch[2], rest, got;
    struct log_entry_step st;
    struct err e = {0};
    struct made m;
    struct log_entry en;

    (void)state;
    log_entry_step_write(
        &(struct log_entry_step){LOG_ENTRY_REQUIRE_VALUE, 3, SLICE("k"), SLICE("old")}, &one);
    log_entry_step_write(&(struct log_entry_step){LOG_ENTRY_PUT, 3, SLICE("k"), SLICE("n\0w")},
                         &one);
    log_entry_step_write(
        &(struct log_entry_step){LOG_ENTRY_REQUIRE_ABSENT, 1, SLICE("x"), SLICE("")}, &two);
    log_entry_step_write(&(struct log_entry_step){LOG_ENTRY_DELETE, 255, SLICE(""), SLICE("")},
                         &two);
    batch[0] = buf_slice(&one);
    batch[1] = buf_slice(&two);
    assert_int_equal(make(42, batch, 2, &m, &e), 0);
    assert_int_equal(log_entry_read(buf_slice(&m.bytes), &en, &e), 0);
    assert_int_equal(en.seq, 42);
    assert_int_equal(en.before.b[0], 9);
    assert_int_equal(en.author.node[2], 3);
    assert_int_equal(en.author.boot, 77);
    assert_int_equal(en.author.counter, 5);
    assert_int_equal(en.batches, 2);
    assert_true(digest_eq(&en.own, &m.own));
    rest = en.steps;
    assert_true(log_entry_batch_next(&rest, &got));
    assert_true(slice_eq(got, batch[0]));
    assert_true(log_entry_step_next(&got, &st) && st.op == LOG_ENTRY_REQUIRE_VALUE &&
                st.table == 3);
    assert_true(slice_eqs(st.key, "k") && slice_eqs(st.value, "old"));
    assert_true(log_entry_step_next(&got, &st) && slice_eq(st.value, SLICE("n\0w")));
    assert_false(log_entry_step_next(&got, &st));
    assert_true(log_entry_batch_next(&rest, &got));
    assert_true(log_entry_step_next(&got, &st) && st.op == LOG_ENTRY_REQUIRE_ABSENT);
    assert_true(log_entry_step_next(&got, &st) && st.op == LOG_ENTRY_DELETE && st.table == 255);
    assert_false(log_entry_batch_next(&rest, &got));
    buf_free(&m.bytes);
    buf_free(&one);
    buf_free(&two);
}

/* Every bit counts, and so does every byte that is missing. */
static void damage_is_seen(void **state)
{
    struct buf one = BUF_INIT(4096);
    struct slice batch;
    struct err e = {0};
    struct made m;
    struct log_entry en;

    (void)state;
    log_entry_step_write(&(struct log_entry_step){LOG_ENTRY_PUT, 3, SLICE("k"), SLICE("v")}, &one);
    batch = buf_slice(&one);
    assert_int_equal(make(1, &batch, 1, &m, &e), 0);
    for (size_t i = 0; i < 8 * m.bytes.n; i++) {
        m.bytes.p[i / 8] = (char)(m.bytes.p[i / 8] ^ 1 << i % 8);
        assert_int_equal(log_entry_read(buf_slice(&m.bytes), &en, &e), E_CORRUPT);
        m.bytes.p[i / 8] = (char)(m.bytes.p[i / 8] ^ 1 << i % 8);
    }
    for (size_t n = 0; n < m.bytes.n; n++) {
        assert_int_equal(log_entry_read(slice_of(m.bytes.p, n), &en, &e), E_CORRUPT);
    }
    assert_int_equal(log_entry_read(buf_slice(&m.bytes), &en, &e), 0);
    buf_free(&m.bytes);
    buf_free(&one);
}

static int read_sealed(const void *p, size_t n, struct err *e)
{
    struct buf b = BUF_INIT(LOG_ENTRY_BYTES_MAX + 100);
    struct digest d;
    struct log_entry en;
    int rc;

    buf_add(&b, p, n);
    digest_of(buf_slice(&b), &d);
    buf_add(&b, d.b, DIGEST_BYTES);
    rc = log_entry_read(buf_slice(&b), &en, e);
    buf_free(&b);
    return rc;
}

static void what_is_whole_may_still_be_wrong(void **state)
{
    struct err e = {0};
    struct made m;

    (void)state;
    assert_int_equal(make(1, NULL, 0, &m, &e), 0);
    m.bytes.n -= DIGEST_BYTES;
    assert_int_equal(read_sealed(m.bytes.p, m.bytes.n, &e), 0);
    m.bytes.p[LOG_ENTRY_HEAD_BYTES - 1] = 1; /* a batch that is not there */
    assert_int_equal(read_sealed(m.bytes.p, m.bytes.n, &e), E_CORRUPT);
    buf_add(&m.bytes, "\0\0\0\3\1\1\0", 7); /* a step that is cut */
    assert_int_equal(read_sealed(m.bytes.p, m.bytes.n, &e), E_CORRUPT);
    m.bytes.n -= 7;
    buf_add(&m.bytes, "\0\0\0\10\5\1\0\0\0\0\0\0", 12); /* an operation that there is not */
    assert_int_equal(read_sealed(m.bytes.p, m.bytes.n, &e), E_CORRUPT);
    m.bytes.n -= 12;
    buf_add(&m.bytes, "\0\0\0\11\2\1\0\0\0\0\0\1x", 13); /* a deletion with a value */
    assert_int_equal(read_sealed(m.bytes.p, m.bytes.n, &e), E_CORRUPT);
    m.bytes.p[7] = '2';
    assert_int_equal(read_sealed(m.bytes.p, m.bytes.n, &e), E_UNSUPPORTED);
    buf_free(&m.bytes);
}

static void an_entry_has_a_limit(void **state)
{
    struct buf one = BUF_INIT(8 << 20);
    struct slice batch;
    struct err e = {0};
    struct made m;
    char *big = mem_new(LOG_ENTRY_BYTES_MAX);

    (void)state;
    log_entry_step_write(&(struct log_entry_step){LOG_ENTRY_PUT, 3, SLICE("k"),
                                                  slice_of(big, LOG_ENTRY_BYTES_MAX - 512)},
                         &one);
    batch = buf_slice(&one);
    assert_int_equal(make(1, &batch, 1, &m, &e), 0);
    buf_free(&m.bytes);
    log_entry_step_write(&(struct log_entry_step){LOG_ENTRY_PUT, 3, SLICE("k"), slice_of(big, 512)},
                         &one);
    batch = buf_slice(&one);
    assert_int_equal(make(1, &batch, 1, &m, &e), E_TOOBIG);
    buf_free(&m.bytes);
    buf_free(&one);
    free(big);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(damage_is_seen),
        cmocka_unit_test(what_is_whole_may_still_be_wrong),
        cmocka_unit_test(an_entry_has_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
