#include "server/cluster/content.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <zstd.h>

static struct content_item item_of(struct slice bytes)
{
    struct content_item it = {
        .kind = CONTENT_BLOB, .stored_bytes = bytes.n, .length_bytes = bytes.n};

    digest_of(bytes, &it.digest);
    return it;
}

static void keys(void **state)
{
    struct content_object o = {CONTENT_PACK, 0x4f00000000000abcu, 1};
    char key[CONTENT_KEY_ROOM];

    (void)state;
    content_key(&o, key);
    assert_string_equal(key, "pack/4f/4f00000000000abc");
    o = (struct content_object){CONTENT_ALONE, 7, 1};
    content_key(&o, key);
    assert_string_equal(key, "blob/00/0000000000000007");
    content_index_key(7, key);
    assert_string_equal(key, "idx/0000000000000007");
}

static void an_item_fits_into_its_object(void **state)
{
    struct content_object pack = {CONTENT_PACK, 1, 1000}, own = {CONTENT_ALONE, 1, 2 << 20};
    struct content_item it = {
        .kind = CONTENT_BLOB, .offset = 900, .stored_bytes = 100, .length_bytes = 100};

    (void)state;
    assert_true(content_fits(&it, &pack));
    assert_false(content_fits(&it, &own));
    it.offset = 901; /* over the end */
    assert_false(content_fits(&it, &pack));
    it.offset = UINT64_MAX - 50;
    assert_false(content_fits(&it, &pack));
    it.offset = 0;
    it.length_bytes = 101; /* raw, and not so long */
    assert_false(content_fits(&it, &pack));
    it.coding = CONTENT_ZSTD;
    assert_true(content_fits(&it, &pack));
    it.length_bytes = CONTENT_SMALL_BYTES; /* more than a pack has */
    assert_false(content_fits(&it, &pack));
    it.length_bytes = 99; /* compressed, and longer */
    assert_false(content_fits(&it, &pack));
    it = (struct content_item){
        .kind = CONTENT_NODE, .stored_bytes = 2 << 20, .length_bytes = 2 << 20};
    assert_true(content_fits(&it, &own));
    it.stored_bytes = it.length_bytes = own.size_bytes = CONTENT_WHOLE_BYTES + 1;
    assert_false(content_fits(&it, &own));
    it.kind = CONTENT_BLOB;
    assert_true(content_fits(&it, &own));
    it.kind = (enum content_kind)0;
    assert_false(content_fits(&it, &own));
    it = (struct content_item){.kind = CONTENT_BLOB, .stored_bytes = 100, .length_bytes = 100};
    assert_true(content_fits(&it, &pack));
    for (unsigned kind = 0; kind < 256; kind++) {
        pack.kind = (enum content_object_kind)kind;
        assert_true(content_fits(&it, &pack) == (kind == CONTENT_PACK));
    }
}

static void an_item_is_decoded_and_checked(void **state)
{
    struct buf out = BUF_INIT(1000);
    struct slice bytes = SLICE("the same, the same, the same, the same, the same, the same");
    struct content_item it = item_of(bytes);
    char small[200];
    struct err e = {0};

    (void)state;
    assert_int_equal(content_decode(&it, bytes, &out, &e), 0);
    assert_true(slice_eq(buf_slice(&out), bytes));
    it.coding = CONTENT_ZSTD;
    it.stored_bytes = ZSTD_compress(small, sizeof small, bytes.p, bytes.n, 1);
    assert_int_equal(content_decode(&it, slice_of(small, it.stored_bytes), &out, &e), 0);
    assert_true(slice_eq(buf_slice(&out), bytes));
    assert_int_equal(content_decode(&it, slice_of(small, it.stored_bytes - 1), &out, &e),
                     E_CORRUPT);
    for (size_t i = 0; i < 8 * it.stored_bytes; i++) { /* zstd has bits without a meaning */
        small[i / 8] = (char)(small[i / 8] ^ 1 << i % 8);
        int rc = content_decode(&it, slice_of(small, it.stored_bytes), &out, &e);
        assert_true(rc == E_CORRUPT || (rc == 0 && slice_eq(buf_slice(&out), bytes)));
        small[i / 8] = (char)(small[i / 8] ^ 1 << i % 8);
    }
    it.length_bytes--;
    assert_int_equal(content_decode(&it, slice_of(small, it.stored_bytes), &out, &e), E_CORRUPT);
    it = item_of(bytes);
    assert_int_equal(content_decode(&it, SLICE("The same"), &out, &e), E_CORRUPT);
    it.digest.b[31] ^= 1;
    assert_int_equal(content_decode(&it, bytes, &out, &e), E_CORRUPT);
    it = item_of(SLICE(""));
    assert_int_equal(content_decode(&it, SLICE(""), &out, &e), 0);
    assert_int_equal(out.n, 0);
    buf_free(&out);
}

static void a_list_of_chunks_has_its_own_checksum(void **state)
{
    struct digest blob = {{1}}, other = {{2}}, chunk[2] = {{{3}}, {{4}}};
    struct buf list = BUF_INIT(1000), out = BUF_INIT(1000);
    struct content_item it = {.digest = blob, .kind = CONTENT_CHUNKS};
    struct err e = {0};

    (void)state;
    chunks_encode(&blob, CHUNK_BYTES + 1, chunk, 2, &list);
    content_seal_chunks(&list);
    it.stored_bytes = it.length_bytes = list.n;
    assert_int_equal(content_decode(&it, buf_slice(&list), &out, &e), 0);
    assert_true(slice_eq(buf_slice(&out), slice_first(buf_slice(&list), list.n - DIGEST_BYTES)));
    for (size_t i = 0; i < list.n; i++) {
        list.p[i] ^= 1;
        assert_int_equal(content_decode(&it, buf_slice(&list), &out, &e), E_CORRUPT);
        list.p[i] ^= 1;
    }
    it.digest = other; /* another blob's */
    assert_int_equal(content_decode(&it, buf_slice(&list), &out, &e), E_CORRUPT);
    it.digest = blob;
    it.stored_bytes = it.length_bytes = 31;
    assert_int_equal(content_decode(&it, slice_of(list.p, 31), &out, &e), E_CORRUPT);
    buf_free(&list);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys),
        cmocka_unit_test(an_item_fits_into_its_object),
        cmocka_unit_test(an_item_is_decoded_and_checked),
        cmocka_unit_test(a_list_of_chunks_has_its_own_checksum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
