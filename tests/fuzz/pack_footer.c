/* The footer of a pack, with a checksum that is right: what another node or a damaged bucket could
 * have written. Every row lies in the pack, and no two of them overlap. */
#include <stdlib.h>

#include "server/cluster/pack.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void read_rows(const struct pack_footer *f, size_t items_bytes)
{
    struct content_item it;
    uint64_t end = 0;

    for (size_t i = 0; i < f->count; i++) {
        pack_footer_item(f, i, &it);
        CHECK(it.offset >= end && it.offset + it.stored_bytes <= items_bytes);
        CHECK(it.length_bytes < CONTENT_SMALL_BYTES);
        end = it.offset + it.stored_bytes;
    }
}

static void read_pack(struct slice pack, bool must_be_damaged)
{
    struct pack_footer f;
    struct err e = {0};
    uint64_t footer;
    int rc = pack_footer_read(pack, pack.n, &f, &e);

    CHECK(rc == 0 || rc == E_CORRUPT || rc == E_UNSUPPORTED);
    CHECK(rc == 0 || e.text[0] != '\0');
    if (rc == 0) {
        CHECK(!must_be_damaged);
        CHECK(pack_footer_bytes(pack, pack.n, &footer, NULL) == 0);
        read_rows(&f, pack.n - (size_t)footer);
    }
}

/* The first two bytes say how long the items before the footer are. */
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct buf b = BUF_INIT(PACK_BYTES_MAX);
    struct digest d;
    size_t items;

    read_pack(slice_of(p, n), false);
    if (n < 2) {
        return 0;
    }
    items = (size_t)be_get(p, 2) % (n - 1);
    buf_add(&b, p + 2, n - 2);
    buf_be(&b, 4, b.n - items + PACK_TAIL_BYTES);
    digest_of(slice_from(buf_slice(&b), items), &d);
    buf_add(&b, d.b, DIGEST_BYTES);
    read_pack(buf_slice(&b), false);
    b.p[b.n - 1] ^= 1;
    read_pack(buf_slice(&b), true);
    buf_free(&b);
    return 0;
}
