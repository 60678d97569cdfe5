/* A visit against a peer that is written here: which answers to its requests the machine takes, and
 * when. */
#include "server/sync/rsync/pull.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "server/sync/rsync/answer.h"
#include "server/sync/rsync/mux.h"

enum { FILES = 9, BLOCK = 700 }; /* the list: ".", then "1" to "9" */

static const struct sums_head whole = {.count = 0};
static const struct sums_head two = {.count = 2, .block_bytes = BLOCK, .strong_bytes = 2};

struct visit {
    struct pull *p;
    struct index_coding coding; /* of the peer's answers */
    bool listed;
    struct buf reported; /* "5 7-" : 5 was answered, 7 is missing; "!" a phase is over */
};

static int on_list(void *arg, struct file_list *l)
{
    struct visit *v = arg;

    assert_int_equal(list_count(l), FILES + 1);
    v->listed = true;
    return 0;
}

static int on_begin(void *arg, int32_t index)
{
    (void)arg;
    assert_in_range(index, 1, FILES);
    return 0;
}

static int on_bytes(void *arg, struct slice bytes, bool here)
{
    (void)arg;
    (void)bytes;
    (void)here;
    return 0;
}

static int read_basis(void *arg, uint64_t off, void *to, size_t n, struct err *e)
{
    (void)arg;
    (void)off;
    (void)e;
    memset(to, 0, n);
    return 0;
}

static int on_end(void *arg, int32_t index, bool good)
{
    struct visit *v = arg;

    (void)good;
    buf_addf(&v->reported, "%d ", (int)index);
    return 0;
}

static void on_missing(void *arg, int32_t index)
{
    struct visit *v = arg;

    buf_addf(&v->reported, "%d- ", (int)index);
}

static void on_phase(void *arg, unsigned phase)
{
    struct visit *v = arg;

    (void)phase;
    buf_str(&v->reported, "! ");
}

static void on_done(void *arg)
{
    (void)arg;
}

static void on_text(void *arg, bool error, struct slice text)
{
    (void)arg;
    (void)error;
    (void)text;
}

static int feed(struct visit *v, struct slice bytes)
{
    struct err e = {.code = 0};
    int rc = pull_feed(v->p, &bytes, &e);

    assert_true(rc != 0 || bytes.n == 0);
    return rc;
}

static int feed_frame(struct visit *v, enum mux_code code, struct buf *data)
{
    struct buf frame = BUF_INIT(1 << 16);
    int rc;

    mux_put(&frame, code, buf_slice(data));
    rc = feed(v, buf_slice(&frame));
    buf_free(&frame);
    buf_free(data);
    return rc;
}

static void put_entry(struct buf *list, char name, uint32_t mode)
{
    buf_byte(list, 0x18); /* owners are as before: of nobody */
    buf_byte(list, 1);
    buf_byte(list, (uint8_t)name);
    put_varlong(list, 2 * BLOCK, 3);
    put_varlong(list, 1, 4);
    put_int(list, (int32_t)mode);
}

/* Up to the list, with requests for 5, all of it, and for 7, all of it or against a basis of two
 * blocks. */
static void begin(struct visit *v, bool basis)
{
    static const struct pull_events ev = {on_list,    on_begin, on_bytes, read_basis, on_end,
                                          on_missing, on_phase, on_done,  on_text};
    const struct pull_settings set = {.module = SLICE("m"),
                                      .offer = 30,
                                      .plain = true,
                                      .limits = {.entries = 100, .text_bytes = 1 << 16}};
    struct buf list = BUF_INIT(1 << 12);

    *v = (struct visit){.coding = INDEX_CODING_INIT, .reported = BUF_INIT(1 << 12)};
    v->p = pull_new(&set, &ev, v);
    assert_int_equal(feed(v, SLICE("@RSYNCD: 30.0\n@RSYNCD: OK\n")), 0);
    assert_int_equal(feed(v, SLICE("\0seed")), 0); /* no abilities */
    put_entry(&list, '.', 0040755);
    for (char c = '1'; c <= '9'; c++) {
        put_entry(&list, c, 0100644);
    }
    buf_byte(&list, 0);
    assert_int_equal(feed_frame(v, MUX_DATA, &list), 0);
    assert_true(v->listed && pull_may_ask(v->p));
    pull_ask(v->p, 5, 2 * BLOCK, 0, false);
    pull_ask(v->p, 7, 2 * BLOCK, basis ? 2 * BLOCK : 0, false);
}

static void write_block(struct visit *v)
{
    static const char zeros[BLOCK];

    pull_block(v->p, slice_of(zeros, sizeof zeros));
}

/* An answer without a byte; its digest is a wrong one, which is no error of the protocol. */
static int answer(struct visit *v, int32_t index, const struct sums_head *head)
{
    struct buf data = BUF_INIT(1 << 12);

    put_index(&data, &v->coding, index);
    put_short(&data, ITEM_TRANSFER);
    put_sums_head(&data, head);
    put_int(&data, 0);
    buf_str(&data, "0123456789abcdef");
    return feed_frame(v, MUX_DATA, &data);
}

static int refuse(struct visit *v, int32_t index)
{
    struct buf data = BUF_INIT(8);

    put_int(&data, index);
    return feed_frame(v, MUX_NO_SEND, &data);
}

static int end_phase(struct visit *v)
{
    struct buf data = BUF_INIT(8);

    pull_end_phase(v->p);
    put_index(&data, &v->coding, INDEX_DONE);
    return feed_frame(v, MUX_DATA, &data);
}

static void end(struct visit *v, const char *reported)
{
    assert_string_equal(buf_cstr(&v->reported), reported);
    pull_free(&v->p);
    buf_free(&v->reported);
}

static void answers_come_in_order(void **state)
{
    struct visit v;

    (void)state;
    begin(&v, false);
    assert_int_equal(answer(&v, 7, &whole), E_PROTOCOL);
    end(&v, "");
    begin(&v, false);
    assert_int_equal(answer(&v, 5, &whole), 0);
    assert_int_equal(answer(&v, 7, &whole), 0);
    assert_int_equal(end_phase(&v), 0);
    end(&v, "5 7 ! ");
    begin(&v, false);
    assert_int_equal(answer(&v, 5, &whole), 0);
    assert_int_equal(answer(&v, 5, &whole), E_PROTOCOL);
    end(&v, "5 ");
}

static void a_phase_ends_after_all_answers(void **state)
{
    struct visit v;

    (void)state;
    begin(&v, false);
    assert_int_equal(answer(&v, 5, &whole), 0);
    assert_int_equal(end_phase(&v), E_PROTOCOL);
    end(&v, "5 ");
    begin(&v, true);
    assert_int_equal(refuse(&v, 5), 0);
    assert_int_equal(end_phase(&v), E_PROTOCOL); /* 7 is being written */
    end(&v, "5- ");
}

static void some_are_refused_out_of_turn(void **state)
{
    static const int32_t never[] = {-1, 6, 7};
    struct visit v;

    (void)state;
    begin(&v, false);
    assert_int_equal(refuse(&v, 7), 0);
    assert_int_equal(answer(&v, 5, &whole), 0);
    assert_int_equal(end_phase(&v), 0);
    end(&v, "7- 5 ! ");
    begin(&v, false);
    assert_int_equal(refuse(&v, 7), 0);
    assert_int_equal(refuse(&v, 5), 0);
    assert_int_equal(end_phase(&v), 0);
    end(&v, "7- 5- ! ");
    for (size_t i = 0; i < ARRAY_LEN(never); i++) {
        begin(&v, false);
        assert_int_equal(refuse(&v, 7), 0);
        assert_int_equal(refuse(&v, never[i]), E_PROTOCOL);
        end(&v, "7- ");
    }
}

/* Whoever writes its sums still needs it. */
static void what_is_being_written_is_not_answered(void **state)
{
    struct visit v;

    (void)state;
    for (int blocks = 0; blocks < 2; blocks++) {
        begin(&v, true);
        for (int i = 0; i < blocks; i++) {
            write_block(&v);
        }
        assert_int_equal(refuse(&v, 7), E_PROTOCOL);
        end(&v, "");
        begin(&v, true);
        for (int i = 0; i < blocks; i++) {
            write_block(&v);
        }
        assert_int_equal(refuse(&v, 5), 0);
        assert_int_equal(answer(&v, 7, &two), E_PROTOCOL);
        end(&v, "5- ");
    }
    begin(&v, true);
    write_block(&v);
    write_block(&v);
    assert_int_equal(refuse(&v, 7), 0);
    assert_int_equal(answer(&v, 5, &whole), 0);
    assert_int_equal(end_phase(&v), 0);
    end(&v, "7- 5 ! ");
    begin(&v, true);
    write_block(&v);
    write_block(&v);
    assert_int_equal(answer(&v, 5, &whole), 0);
    assert_int_equal(answer(&v, 7, &two), 0);
    assert_int_equal(end_phase(&v), 0);
    end(&v, "5 7 ! ");
}

/* By the blocks that were sent, or without any: that is always right. */
static void an_answer_has_the_blocks_of_its_request(void **state)
{
    static const struct sums_head others[] = {
        {.count = 1, .block_bytes = BLOCK, .strong_bytes = 2},
        {.count = 2, .block_bytes = BLOCK + 8, .strong_bytes = 2},
        {.count = 2, .block_bytes = BLOCK, .strong_bytes = 2, .remainder = 1}};
    struct visit v;

    (void)state;
    for (size_t i = 0; i <= ARRAY_LEN(others); i++) {
        begin(&v, true);
        write_block(&v);
        write_block(&v);
        assert_int_equal(answer(&v, 5, &whole), 0);
        if (i < ARRAY_LEN(others)) {
            assert_int_equal(answer(&v, 7, &others[i]), E_PROTOCOL);
            end(&v, "5 ");
        } else {
            assert_int_equal(answer(&v, 7, &whole), 0);
            end(&v, "5 7 ");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_come_in_order),
        cmocka_unit_test(a_phase_ends_after_all_answers),
        cmocka_unit_test(some_are_refused_out_of_turn),
        cmocka_unit_test(what_is_being_written_is_not_answered),
        cmocka_unit_test(an_answer_has_the_blocks_of_its_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
