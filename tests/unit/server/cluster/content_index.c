#include "server/cluster/content_index.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static struct content_item item_at(uint64_t offset, uint64_t n)
{
    return (struct content_item){
        .kind = CONTENT_BLOB, .offset = offset, .stored_bytes = n, .length_bytes = n};
}

static void number(struct digest *d, uint32_t n)
{
    be_put(d->b, 4, n * 2654435761u);
    be_put(d->b + 28, 4, n);
}

/* Two objects; of one digest a blob and a list of chunks. */
static void make(struct buf *out)
{
    struct content_index_writer *w = content_index_writer_new();
    struct content_item it = item_at(0, 3 << 20);
    uint32_t pack, own;

    *out = BUF_INIT(CONTENT_INDEX_BYTES_MAX);
    pack = content_index_new_object(w);
    own = content_index_new_object(w);
    content_index_set_object(w, own, &(struct content_object){CONTENT_ALONE, 8, 3 << 20});
    it.digest.b[0] = 9;
    content_index_add(w, &it, own);
    it = item_at(64, 50);
    it.digest.b[0] = 9;
    it.kind = CONTENT_CHUNKS;
    content_index_add(w, &it, pack);
    it.digest.b[0] = 1;
    it.kind = CONTENT_NODE;
    it.offset = 128;
    content_index_add(w, &it, pack);
    content_index_set_object(w, pack, &(struct content_object){CONTENT_PACK, 7, 178});
    assert_true(content_index_has(w, CONTENT_NODE, &it.digest));
    assert_false(content_index_has(w, CONTENT_BLOB, &it.digest));
    assert_int_equal(content_index_count(w), 3);
    content_index_finish(w, out);
    assert_int_equal(content_index_count(w), 0);
    assert_false(content_index_has(w, CONTENT_NODE, &it.digest));
    content_index_writer_free(&w);
}

static void what_is_written_is_read(void **state)
{
    struct content_index ix;
    struct content_object o;
    struct content_item it;
    struct digest d = {{9}};
    struct err e = {0};
    struct buf b;

    (void)state;
    make(&b);
    assert_int_equal(content_index_open(buf_slice(&b), &ix, &e), 0);
    assert_int_equal(ix.count, 3);
    content_index_row(&ix, 0, &it, &o);
    assert_true(it.digest.b[0] == 1 && it.kind == CONTENT_NODE && it.offset == 128);
    assert_true(o.kind == CONTENT_PACK && o.nonce == 7 && o.size_bytes == 178);
    assert_true(content_index_find(&ix, CONTENT_BLOB, &d, &it, &o));
    assert_true(o.kind == CONTENT_ALONE && o.nonce == 8 && it.length_bytes == 3 << 20);
    assert_true(content_index_find(&ix, CONTENT_CHUNKS, &d, &it, &o));
    assert_true(o.kind == CONTENT_PACK && it.offset == 64 && it.stored_bytes == 50);
    assert_false(content_index_find(&ix, CONTENT_NODE, &d, &it, &o));
    buf_free(&b);
}

static void all_of_many_are_found(void **state)
{
    enum { MANY = 5000 };
    struct content_index_writer *w = content_index_writer_new();
    struct buf b = BUF_INIT(CONTENT_INDEX_BYTES_MAX);
    struct content_object o = {CONTENT_PACK, 1, MANY};
    struct content_item it = item_at(0, 1);
    struct content_index ix;

    (void)state;
    content_index_set_object(w, content_index_new_object(w), &o);
    for (uint32_t i = 0; i < MANY; i++) {
        number(&it.digest, i);
        it.offset = i;
        content_index_add(w, &it, 0);
    }
    content_index_finish(w, &b);
    assert_int_equal(content_index_open(buf_slice(&b), &ix, NULL), 0);
    for (uint32_t i = 0; i < 2 * MANY; i++) {
        struct digest d = {0};
        number(&d, i);
        assert_true(content_index_find(&ix, CONTENT_BLOB, &d, &it, &o) == (i < MANY));
        assert_true(i >= MANY || it.offset == i);
    }
    buf_free(&b);
    content_index_writer_free(&w);
}

static void an_empty_index(void **state)
{
    struct content_index_writer *w = content_index_writer_new();
    struct buf b = BUF_INIT(CONTENT_INDEX_BYTES_MAX);
    struct content_object o;
    struct content_index ix;
    struct content_item it;
    struct digest d = {{1}};

    (void)state;
    content_index_finish(w, &b);
    assert_int_equal(content_index_open(buf_slice(&b), &ix, NULL), 0);
    assert_false(content_index_find(&ix, CONTENT_BLOB, &d, &it, &o));
    buf_free(&b);
    content_index_writer_free(&w);
}

/* --- damage --- */

static void damage_is_seen(void **state)
{
    struct content_index ix;
    struct buf b;

    (void)state;
    make(&b);
    for (size_t i = 0; i < 8 * b.n; i++) {
        b.p[i / 8] = (char)(b.p[i / 8] ^ 1 << i % 8);
        assert_int_equal(content_index_open(buf_slice(&b), &ix, NULL), E_CORRUPT);
        b.p[i / 8] = (char)(b.p[i / 8] ^ 1 << i % 8);
    }
    for (size_t i = 0; i < b.n; i++) {
        assert_int_equal(content_index_open(slice_of(b.p, i), &ix, NULL), E_CORRUPT);
    }
    assert_int_equal(
        content_index_open(slice_of(b.p, (size_t)CONTENT_INDEX_BYTES_MAX + 1), &ix, NULL),
        E_TOOBIG);
    buf_free(&b);
}

static int open_sealed(struct buf *b)
{
    struct content_index ix;
    struct digest d;

    digest_of(slice_first(buf_slice(b), b->n - DIGEST_BYTES), &d);
    memcpy(b->p + b->n - DIGEST_BYTES, d.b, DIGEST_BYTES);
    return content_index_open(buf_slice(b), &ix, NULL);
}

static void what_is_whole_may_still_be_wrong(void **state)
{
    struct buf b;
    char *object, *row, *last;

    (void)state;
    make(&b);
    object = b.p + CONTENT_INDEX_HEAD_BYTES;
    row = object + 2 * CONTENT_INDEX_OBJECT_BYTES;
    last = row + 2 * CONTENT_INDEX_ROW_BYTES;
    assert_int_equal(open_sealed(&b), 0);
    b.p[7] = '2';
    assert_int_equal(open_sealed(&b), E_UNSUPPORTED);
    b.p[7] = '1';
    b.p[15] = 4; /* a row that is not there */
    assert_int_equal(open_sealed(&b), E_CORRUPT);
    b.p[15] = 3;
    object[0] = 3; /* a kind that there is not */
    assert_int_equal(open_sealed(&b), E_CORRUPT);
    object[0] = CONTENT_PACK;
    object[16] = (char)177; /* the object ends before its last item does */
    assert_int_equal(open_sealed(&b), E_CORRUPT);
    object[16] = (char)178;
    last[37] = 2; /* an object that there is not */
    assert_int_equal(open_sealed(&b), E_CORRUPT);
    last[37] = 0;
    row[0] = 10; /* out of order */
    assert_int_equal(open_sealed(&b), E_CORRUPT);
    row[0] = 9; /* the same digest, a lesser kind: in order */
    row[DIGEST_BYTES] = CONTENT_NODE;
    assert_int_equal(open_sealed(&b), 0);
    row[DIGEST_BYTES] = CONTENT_BLOB; /* twice */
    assert_int_equal(open_sealed(&b), E_CORRUPT);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(all_of_many_are_found),
        cmocka_unit_test(an_empty_index),
        cmocka_unit_test(damage_is_seen),
        cmocka_unit_test(what_is_whole_may_still_be_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
