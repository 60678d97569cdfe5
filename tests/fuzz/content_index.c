/* An index of a cluster's content, with a checksum that is right: what another node or a damaged
 * bucket could have written. Each row is found, and what is read is written again and is the
 * same. */
#include <stdlib.h>

#include "server/cluster/content_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void find_all(const struct content_index *ix)
{
    struct content_object o, found_in;
    struct content_item it, found;

    for (size_t i = 0; i < ix->count; i++) {
        content_index_row(ix, i, &it, &o);
        CHECK(content_fits(&it, &o));
        CHECK(content_index_find(ix, it.kind, &it.digest, &found, &found_in));
        CHECK(found.offset == it.offset && found.stored_bytes == it.stored_bytes &&
              found.length_bytes == it.length_bytes && found_in.nonce == o.nonce);
        it.digest.b[31] ^= 1;
        (void)content_index_find(ix, it.kind, &it.digest, &found, &found_in);
    }
}

/* Each row gets an object of its own, so the numbers of objects differ and the rows do not. */
static void write_again(const struct content_index *ix)
{
    struct content_index_writer *w = content_index_writer_new();
    struct buf out = BUF_INIT(CONTENT_INDEX_BYTES_MAX);
    struct content_index again;
    struct content_object o, other;
    struct content_item it, same;

    for (size_t i = ix->count; i-- > 0;) {
        uint32_t number = content_index_new_object(w);
        content_index_row(ix, i, &it, &o);
        CHECK(!content_index_has(w, it.kind, &it.digest));
        content_index_set_object(w, number, &o);
        content_index_add(w, &it, number);
    }
    content_index_finish(w, &out);
    CHECK(content_index_open(buf_slice(&out), &again, NULL) == 0 && again.count == ix->count);
    for (size_t i = 0; i < ix->count; i++) {
        content_index_row(ix, i, &it, &o);
        content_index_row(&again, i, &same, &other);
        CHECK(digest_eq(&it.digest, &same.digest) && it.kind == same.kind &&
              it.coding == same.coding && it.offset == same.offset && o.nonce == other.nonce);
    }
    buf_free(&out);
    content_index_writer_free(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct buf b = BUF_INIT(CONTENT_INDEX_BYTES_MAX + DIGEST_BYTES);
    struct content_index ix;
    struct err e = {0};
    struct digest d;
    int rc;

    buf_add(&b, p, n);
    digest_of(buf_slice(&b), &d);
    buf_add(&b, d.b, DIGEST_BYTES);
    rc = content_index_open(buf_slice(&b), &ix, &e);
    CHECK(rc == 0 || rc == E_CORRUPT || rc == E_UNSUPPORTED);
    CHECK(rc == 0 || e.text[0] != '\0');
    if (rc == 0) {
        find_all(&ix);
        write_again(&ix);
    }
    buf_free(&b);
    return 0;
}
