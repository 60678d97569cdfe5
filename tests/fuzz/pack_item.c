/* An item as it is stored in a pack: any kind, coding and lengths. What is accepted has the SHA-256
 * that names it, and what is packed is read again. */
#include <stdlib.h>

#include "server/cluster/pack.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum { HEAD_BYTES = 2 + 3 };

static void decode(const struct content_item *it, struct slice stored)
{
    struct content_object o = {CONTENT_PACK, 1, stored.n};
    struct buf out = BUF_INIT(CONTENT_SMALL_BYTES);
    struct digest d;
    int rc;

    if (content_fits(it, &o)) {
        rc = content_decode(it, stored, &out, NULL);
        CHECK(rc == 0 || rc == E_CORRUPT);
        digest_of(buf_slice(&out), &d);
        CHECK(rc != 0 || it->kind == CONTENT_CHUNKS || digest_eq(&d, &it->digest));
    }
    buf_free(&out);
}

/* The writer and its two packs are kept: making them anew takes longer than the rest. */
static void write_and_read(struct slice bytes)
{
    static struct pack_writer *w;
    static struct buf pack;
    struct buf out = BUF_INIT(CONTENT_SMALL_BYTES);
    struct content_item it;
    struct pack_footer f;
    struct digest d;

    w = w != NULL ? w : pack_writer_new();
    digest_of(bytes, &d);
    CHECK(pack_add(w, CONTENT_NODE, &d, bytes, &it, NULL) == 0);
    pack_finish(w, &pack, &d);
    CHECK(pack_footer_read(buf_slice(&pack), pack.n, &f, NULL) == 0 && f.count == 1);
    CHECK(content_decode(&it, slice_of(pack.p + it.offset, it.stored_bytes), &out, NULL) == 0);
    CHECK(slice_eq(buf_slice(&out), bytes));
    buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct content_item it = {0};
    struct slice stored;

    if (n < HEAD_BYTES || n >= CONTENT_SMALL_BYTES) {
        return 0;
    }
    stored = slice_of(p + HEAD_BYTES, n - HEAD_BYTES);
    it.kind = (enum content_kind)p[0];
    it.coding = (enum content_coding)p[1];
    it.length_bytes = be_get(p + 2, 3);
    it.stored_bytes = stored.n;
    digest_of(stored, &it.digest);
    if (it.kind == CONTENT_CHUNKS && stored.n >= 24 + DIGEST_BYTES) {
        memcpy(it.digest.b, stored.p + 24, DIGEST_BYTES); /* the blob that the list names */
    }
    decode(&it, stored);
    write_and_read(stored);
    return 0;
}
