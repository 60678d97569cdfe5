#include "server/cluster/pack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "common/base/dice.h"

static void add(struct pack_writer *w, struct slice bytes, struct content_item *it)
{
    struct digest d;

    digest_of(bytes, &d);
    assert_true(pack_has_room(w, bytes.n));
    assert_int_equal(pack_add(w, CONTENT_BLOB, &d, bytes, it, NULL), 0);
}

static void fill(char *p, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        p[i] = (char)dice_throw(&seed);
    }
}

/* An index entry and the footer say the same, and the bytes are there. */
static void what_is_written_is_read(void **state)
{
    struct pack_writer *w = pack_writer_new();
    struct buf pack = {0}, out = BUF_INIT(CONTENT_SMALL_BYTES);
    struct content_item want[5], got;
    struct pack_footer f;
    struct digest sum, own;
    struct slice bytes[5];
    char noise[20000], text[9000];
    struct err e = {0};

    (void)state;
    fill(noise, sizeof noise, 5);
    memset(text, 'x', sizeof text);
    bytes[0] = SLICE("short");
    bytes[1] = slice_of(noise, sizeof noise);
    bytes[2] = slice_of(text, sizeof text);
    bytes[3] = SLICE("");
    bytes[4] = slice_of(noise, 64);
    for (size_t i = 0; i < 5; i++) {
        add(w, bytes[i], &want[i]);
    }
    assert_int_equal(pack_count(w), 5);
    assert_int_equal(want[1].offset, 64);
    assert_int_equal(want[1].coding, CONTENT_RAW);
    assert_int_equal(want[2].coding, CONTENT_ZSTD);
    assert_true(want[2].stored_bytes < 100);
    pack_finish(w, &pack, &sum);
    digest_of(buf_slice(&pack), &own);
    assert_true(digest_eq(&sum, &own));
    assert_int_equal(pack_footer_read(buf_slice(&pack), pack.n, &f, &e), 0);
    assert_int_equal(f.count, 5);
    for (size_t i = 0; i < 5; i++) {
        pack_footer_item(&f, i, &got);
        assert_true(digest_eq(&got.digest, &want[i].digest));
        assert_int_equal(got.kind, CONTENT_BLOB);
        assert_int_equal(got.coding, want[i].coding);
        assert_int_equal(got.offset, want[i].offset);
        assert_int_equal(got.stored_bytes, want[i].stored_bytes);
        assert_int_equal(got.length_bytes, bytes[i].n);
        assert_int_equal(
            content_decode(&got, slice_of(pack.p + got.offset, got.stored_bytes), &out, &e), 0);
        assert_true(slice_eq(buf_slice(&out), bytes[i]));
    }
    assert_int_equal(pack_count(w), 0); /* the next one has nothing of it */
    add(w, SLICE("short"), &got);
    pack_finish(w, &pack, &sum);
    digest_of(buf_slice(&pack), &own);
    assert_true(digest_eq(&sum, &own) && got.offset == 0);
    assert_int_equal(pack_footer_read(buf_slice(&pack), pack.n, &f, &e), 0);
    assert_int_equal(f.count, 1);
    buf_free(&pack);
    buf_free(&out);
    pack_writer_free(&w);
}

static void an_item_that_does_not_match_is_refused(void **state)
{
    char text[9000];
    struct pack_writer *w;
    struct content_item it;
    struct digest d = {{1}};

    (void)state;
    memset(text, 'x', sizeof text);
    for (int i = 0; i < 3; i++) { /* stored as it is, compressed, a list of chunks */
        struct slice bytes = i == 1 ? slice_of(text, sizeof text) : SLICE("bytes");
        w = pack_writer_new();
        assert_int_equal(pack_add(w, i == 2 ? CONTENT_CHUNKS : CONTENT_NODE, &d, bytes, &it, NULL),
                         E_CORRUPT);
        pack_writer_free(&w);
    }
}

static void a_pack_is_full_of_bytes(void **state)
{
    struct pack_writer *w = pack_writer_new();
    size_t n = CONTENT_SMALL_BYTES - 1;
    struct content_item it;
    struct buf pack = {0};
    char *noise = mem_new(n);
    struct digest sum;
    size_t count = 0;

    (void)state;
    while (pack_has_room(w, n)) {
        fill(noise, n, ++count);
        add(w, slice_of(noise, n), &it);
    }
    assert_int_equal(count, 16);
    pack_finish(w, &pack, &sum);
    assert_true(pack.n <= PACK_BYTES_MAX);
    free(noise);
    buf_free(&pack);
    pack_writer_free(&w);
}

static void a_pack_is_full_of_items(void **state)
{
    struct pack_writer *w = pack_writer_new();
    struct content_item it;
    struct buf pack = {0};
    struct pack_footer f;
    struct digest sum;
    uint32_t n = 0;

    (void)state;
    for (; pack_has_room(w, sizeof n); n++) {
        add(w, slice_of(&n, sizeof n), &it);
    }
    assert_int_equal(n, PACK_ITEMS_MAX);
    pack_finish(w, &pack, &sum);
    assert_int_equal(pack_footer_read(buf_slice(&pack), pack.n, &f, NULL), 0);
    assert_int_equal(f.count, PACK_ITEMS_MAX);
    buf_free(&pack);
    pack_writer_free(&w);
}

/* --- damage --- */

static void make(struct buf *pack)
{
    struct pack_writer *w = pack_writer_new();
    struct content_item it;
    struct digest sum;

    *pack = (struct buf){0};
    add(w, SLICE("one"), &it);
    add(w, SLICE("another"), &it);
    pack_finish(w, pack, &sum);
    pack_writer_free(&w);
}

static void damage_is_seen(void **state)
{
    struct pack_footer f;
    struct buf pack;
    uint64_t n;

    (void)state;
    make(&pack);
    assert_int_equal(pack_footer_bytes(slice_of(pack.p + pack.n - PACK_TAIL_BYTES, PACK_TAIL_BYTES),
                                       pack.n, &n, NULL),
                     0);
    assert_int_equal(n, PACK_FOOTER_MIN + 2 * PACK_ROW_BYTES);
    for (size_t i = 8 * (pack.n - n); i < 8 * pack.n; i++) {
        pack.p[i / 8] = (char)(pack.p[i / 8] ^ 1 << i % 8);
        assert_int_equal(pack_footer_read(buf_slice(&pack), pack.n, &f, NULL), E_CORRUPT);
        pack.p[i / 8] = (char)(pack.p[i / 8] ^ 1 << i % 8);
    }
    for (size_t i = 0; i < pack.n; i++) { /* cut at either end */
        assert_int_equal(pack_footer_read(slice_of(pack.p, i), i, &f, NULL), E_CORRUPT);
        assert_int_equal(pack_footer_read(slice_from(buf_slice(&pack), i), pack.n, &f, NULL),
                         pack.n - i >= n ? 0 : E_CORRUPT);
    }
    buf_free(&pack);
}

static int read_sealed(struct buf *pack)
{
    struct pack_footer f;
    struct digest d;
    uint64_t n;

    assert_int_equal(pack_footer_bytes(buf_slice(pack), pack->n, &n, NULL), 0);
    digest_of(slice_of(pack->p + pack->n - n, n - DIGEST_BYTES), &d);
    memcpy(pack->p + pack->n - DIGEST_BYTES, d.b, DIGEST_BYTES);
    return pack_footer_read(buf_slice(pack), pack->n, &f, NULL);
}

static void what_is_whole_may_still_be_wrong(void **state)
{
    struct buf pack;
    char *magic, *row;

    (void)state;
    make(&pack);
    row = pack.p + pack.n - PACK_TAIL_BYTES - PACK_ROW_BYTES;
    magic = row - PACK_ROW_BYTES - 8;
    assert_int_equal(read_sealed(&pack), 0);
    magic[7] = '2';
    assert_int_equal(read_sealed(&pack), E_UNSUPPORTED);
    magic[7] = '1';
    row[DIGEST_BYTES] = 9; /* a kind that there is not */
    assert_int_equal(read_sealed(&pack), E_CORRUPT);
    row[DIGEST_BYTES] = CONTENT_BLOB;
    row[DIGEST_BYTES + 5] = 0; /* the second item where the first one is */
    assert_int_equal(read_sealed(&pack), E_CORRUPT);
    row[DIGEST_BYTES + 5] = 65; /* not where a block begins */
    assert_int_equal(read_sealed(&pack), E_CORRUPT);
    row[DIGEST_BYTES + 4] = 1; /* in the footer */
    row[DIGEST_BYTES + 5] = 0;
    assert_int_equal(read_sealed(&pack), E_CORRUPT);
    row[DIGEST_BYTES + 4] = 0;
    row[DIGEST_BYTES + 5] = 64;
    assert_int_equal(read_sealed(&pack), 0);
    buf_free(&pack);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(an_item_that_does_not_match_is_refused),
        cmocka_unit_test(a_pack_is_full_of_bytes),
        cmocka_unit_test(a_pack_is_full_of_items),
        cmocka_unit_test(damage_is_seen),
        cmocka_unit_test(what_is_whole_may_still_be_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
