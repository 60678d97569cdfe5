/* bundle.c - fuzzes what is read of a bundle: a manifest (its length before it, four bytes), and
 * the rest of a tar that begins with it. */
#include <stdio.h>
#include <stdlib.h>

#include "server/ctl/bundle_in.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* No name of a bundle leads out of it. */
static void look(const struct bundle *b)
{
    for (const struct bundle_item *it = b->items; it != NULL; it = it->hh.next) {
        struct slice rest = slice_str(it->path);
        CHECK(rest.n > 0 && rest.p[0] != '/');
        while (rest.n != 0) {
            struct slice s = slice_cut(&rest, '/');
            CHECK(s.n > 0 && s.n < 256 && !slice_eqs(s, "..") && !slice_eqs(s, "."));
        }
        CHECK(bundle_find(b, slice_str(it->path)) == it && it->revision < b->revisions);
    }
}

/* What is written of it is read again as the same. */
static void again(const struct bundle *b)
{
    struct buf out = BUF_INIT(64 << 20), twice = BUF_INIT(64 << 20);
    struct bundle other;

    bundle_write(b, &out);
    CHECK(out.rc == 0 && bundle_read(buf_slice(&out), &other, NULL) == 0);
    bundle_write(&other, &twice);
    CHECK(slice_eq(buf_slice(&out), buf_slice(&twice)));
    bundle_free(&other);
    buf_free(&out);
    buf_free(&twice);
}

static void put_entry(struct buf *tar, const char *name, struct slice data)
{
    char head[512] = {0};
    unsigned sum = 0;

    snprintf(head, 100, "%s", name);
    snprintf(head + 100, 8, "%07o", 0644);
    snprintf(head + 124, 12, "%011zo", data.n);
    snprintf(head + 136, 12, "%011o", 0);
    memset(head + 148, ' ', 8);
    head[156] = '0';
    memcpy(head + 257, "ustar\00000", 8);
    for (size_t i = 0; i < sizeof head; i++) {
        sum += (uint8_t)head[i];
    }
    snprintf(head + 148, 8, "%06o", sum);
    buf_add(tar, head, sizeof head);
    buf_adds(tar, data);
    while (tar->n % 512 != 0) {
        buf_byte(tar, 0);
    }
}

static void read_tar(struct slice tar)
{
    struct bundle_in *in = NULL;
    struct bundle_item *it, *as;
    struct digest d;
    struct bundle b;
    struct err e;

    if (bundle_in_open_bytes(tar, &in, &e) != 0) {
        return;
    }
    if (bundle_in_manifest(in, NULL, &b, &d, &e) == 0) {
        while (bundle_in_next(in, &it, &as, &e) == 0 && it != NULL) {
            struct buf out = BUF_INIT(1 << 20);
            CHECK(bundle_find(&b, slice_str(it->path)) == it && !it->left_out);
            if (as == NULL && bundle_in_bytes(in, it, &out, &e) == 0) {
                digest_of(buf_slice(&out), &d);
                CHECK(out.n == it->size_bytes && digest_eq(&d, &it->sha256));
            }
            buf_free(&out);
        }
    }
    bundle_in_close(&in);
    bundle_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct buf tar = BUF_INIT(64 << 20);
    struct slice all = slice_of(p, n), manifest;
    char hex[DIGEST_HEX + 1], sums[256];
    struct digest d;
    struct bundle b;
    uint32_t len;

    if (n < sizeof len) {
        return 0;
    }
    memcpy(&len, p, sizeof len);
    all = slice_from(all, sizeof len);
    manifest = slice_first(all, len < all.n ? len : all.n);
    if (bundle_read(manifest, &b, NULL) == 0) {
        look(&b);
        again(&b);
        bundle_free(&b);
    }
    digest_of(manifest, &d);
    digest_format(&d, hex);
    snprintf(sums, sizeof sums, "%s  " BUNDLE_MANIFEST "\n", hex);
    put_entry(&tar, BUNDLE_SUMS, slice_str(sums));
    put_entry(&tar, BUNDLE_MANIFEST, manifest);
    buf_adds(&tar, slice_from(all, manifest.n));
    read_tar(buf_slice(&tar));
    buf_free(&tar);
    return 0;
}
