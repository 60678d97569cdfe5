#include "server/cluster/pack.h"

#include <stdlib.h>
#include <zstd.h>

#include "common/hash/sha256.h"
#include "server/cluster/format.h"

#define MAGIC      SLICE("mrdpak01")
#define MAGIC_KIND SLICE("mrdpak")

enum {
    LEVEL = 1,
    FIRST_BYTES = 256 << 10, /* a pack of a small publish does not have more */
    SAMPLE_FROM_BYTES = 1024,
    SAMPLE_BYTES = 512,
    SAMPLE_SQUARES = 512 + 512 * 511 / 256 + 6 * 45,
};

_Static_assert((int)PACK_ALIGN == (int)SHA256_BLOCK, "an item begins where a block does");

/* --- writing --- */

struct pack_writer {
    struct buf bytes;
    struct buf rows;
    struct sha256 sum; /* of bytes */
    ZSTD_CCtx *zstd;
    char *small; /* CONTENT_SMALL_BYTES, for a compressed item; NULL: not needed yet */
    size_t count;
    bool broken; /* sum has what an item should not have had */
};

static void begin_pack(struct pack_writer *w)
{
    w->bytes.max = PACK_BYTES_MAX;
    buf_clear(&w->bytes);
    sha256_init(&w->sum, sha256_best());
    buf_clear(&w->rows);
    w->count = 0;
}

struct pack_writer *pack_writer_new(void)
{
    struct pack_writer *w = NEW(struct pack_writer);

    w->rows = BUF_INIT((size_t)PACK_ITEMS_MAX * PACK_ROW_BYTES);
    w->zstd = ZSTD_createCCtx();
    CHECK(w->zstd != NULL);
    begin_pack(w);
    return w;
}

void pack_writer_free(struct pack_writer **wp)
{
    struct pack_writer *w = *wp;

    *wp = NULL;
    if (w == NULL) {
        return;
    }
    sha256_fini(&w->sum);
    ZSTD_freeCCtx(w->zstd);
    buf_free(&w->bytes);
    buf_free(&w->rows);
    free(w->small);
    free(w);
}

static size_t padded(size_t n)
{
    return (n + PACK_ALIGN - 1) / PACK_ALIGN * PACK_ALIGN;
}

bool pack_has_room(const struct pack_writer *w, size_t length_bytes)
{
    return w->count < PACK_ITEMS_MAX && padded(w->bytes.n) + length_bytes <= PACK_ITEMS_BYTES;
}

size_t pack_count(const struct pack_writer *w)
{
    return w->count;
}

/* Whether the item's bytes are equally frequent, as those of compressed and of random data are. The
 * squares of the frequencies of n such bytes add up to n + n(n-1)/256, with a standard deviation of
 * sqrt(n(n-1)/128); the limit is 6 of them above that. zstd needs 0.5 s/GiB to find it out. */
static bool looks_random(struct slice bytes)
{
    uint16_t count[256] = {0};
    uint32_t squares = 0;

    if (bytes.n < SAMPLE_FROM_BYTES) {
        return false;
    }
    for (size_t i = 0; i < SAMPLE_BYTES; i++) { /* in eight runs, from all over the item */
        size_t run = i / (SAMPLE_BYTES / 8), at = i % (SAMPLE_BYTES / 8);
        count[(uint8_t)bytes.p[bytes.n / 8 * run + at]]++;
    }
    for (size_t i = 0; i < 256; i++) {
        squares += (uint32_t)count[i] * count[i];
    }
    return squares < SAMPLE_SQUARES;
}

/* The compressed form, in w->small, if it saves a block; else 0. */
static size_t compress_if_smaller(struct pack_writer *w, struct slice bytes)
{
    size_t n;

    if (bytes.n <= PACK_ALIGN || looks_random(bytes)) {
        return 0;
    }
    if (w->small == NULL) {
        w->small = mem_new(CONTENT_SMALL_BYTES);
    }
    n = ZSTD_compressCCtx(w->zstd, w->small, bytes.n - PACK_ALIGN, bytes.p, bytes.n, LEVEL);
    return ZSTD_isError(n) ? 0 : n; /* it does not fit */
}

static void append(struct pack_writer *w, const void *p, size_t n)
{
    if (w->bytes.n + n > FIRST_BYTES) { /* once: it does not move any more */
        CHECK(buf_room(&w->bytes, PACK_ITEMS_BYTES - w->bytes.n) != NULL);
    }
    buf_add(&w->bytes, p, n);
    sha256_add(&w->sum, p, n);
}

static void align(struct pack_writer *w)
{
    static const char zeros[PACK_ALIGN];

    append(w, zeros, padded(w->bytes.n) - w->bytes.n);
}

/* Whether the bytes are those of the item. `own`: their SHA-256, if it is known. */
static bool is_item(enum content_kind kind, const struct digest *d, struct slice bytes,
                    const struct digest *own)
{
    struct content_item it = {
        .digest = *d, .kind = kind, .stored_bytes = bytes.n, .length_bytes = bytes.n};
    struct buf out = BUF_INIT(CONTENT_SMALL_BYTES);
    bool good;

    if (own != NULL && kind != CONTENT_CHUNKS) {
        return digest_eq(d, own);
    }
    good = content_decode(&it, bytes, &out, NULL) == 0;
    buf_free(&out);
    return good;
}

static void append_row(struct pack_writer *w, const struct content_item *it)
{
    buf_add(&w->rows, it->digest.b, DIGEST_BYTES);
    buf_byte(&w->rows, (uint8_t)it->kind);
    buf_byte(&w->rows, (uint8_t)it->coding);
    buf_be(&w->rows, 4, it->offset);
    buf_be(&w->rows, 4, it->stored_bytes);
    buf_be(&w->rows, 4, it->length_bytes);
    w->count++;
}

int pack_add(struct pack_writer *w, enum content_kind kind, const struct digest *d,
             struct slice bytes, struct content_item *out, struct err *e)
{
    struct digest own;
    size_t packed;

    CHECK(bytes.n < CONTENT_SMALL_BYTES && pack_has_room(w, bytes.n) && !w->broken);
    align(w);
    *out = (struct content_item){
        .digest = *d, .kind = kind, .offset = w->bytes.n, .length_bytes = bytes.n};
    packed = compress_if_smaller(w, bytes);
    if (packed != 0) {
        out->coding = CONTENT_ZSTD;
        out->stored_bytes = packed;
        digest_of(bytes, &own);
        append(w, w->small, packed);
    } else {
        out->coding = CONTENT_RAW;
        out->stored_bytes = bytes.n;
        sha256_part_begin(&w->sum);
        append(w, bytes.p, bytes.n);
        sha256_part_end(&w->sum, own.b);
    }
    if (!is_item(kind, d, bytes, &own)) {
        w->broken = true;
        return err_set(e, E_CORRUPT, "the bytes of an item do not match its SHA-256");
    }
    append_row(w, out);
    return 0;
}

void pack_finish(struct pack_writer *w, struct buf *out, struct digest *sha256)
{
    size_t from = w->bytes.n;
    struct buf emptied;
    struct digest own;

    CHECK(!w->broken);
    buf_adds(&w->bytes, MAGIC);
    buf_adds(&w->bytes, buf_slice(&w->rows));
    buf_be(&w->bytes, 4, w->bytes.n - from + PACK_TAIL_BYTES);
    digest_of(slice_from(buf_slice(&w->bytes), from), &own);
    buf_add(&w->bytes, own.b, DIGEST_BYTES);
    CHECK(w->bytes.rc == 0);
    sha256_add(&w->sum, w->bytes.p + from, w->bytes.n - from);
    sha256_so_far(&w->sum, sha256->b);
    sha256_fini(&w->sum);
    emptied = *out;
    *out = w->bytes;
    w->bytes = emptied;
    begin_pack(w);
}

/* --- reading --- */

int pack_footer_bytes(struct slice tail, uint64_t pack_bytes, uint64_t *out, struct err *e)
{
    CHECK(tail.n >= PACK_TAIL_BYTES);
    *out = be_get(tail.p + tail.n - PACK_TAIL_BYTES, 4);
    return *out >= PACK_FOOTER_MIN && *out <= pack_bytes && pack_bytes <= PACK_BYTES_MAX
               ? 0
               : err_set(e, E_CORRUPT, "these bytes are not a pack of the cluster");
}

void pack_footer_item(const struct pack_footer *f, size_t i, struct content_item *out)
{
    const char *p = f->rows.p + i * PACK_ROW_BYTES;

    CHECK(i < f->count);
    memcpy(out->digest.b, p, DIGEST_BYTES);
    p += DIGEST_BYTES;
    out->kind = (enum content_kind)(uint8_t)p[0];
    out->coding = (enum content_coding)(uint8_t)p[1];
    out->offset = be_get(p + 2, 4);
    out->stored_bytes = be_get(p + 6, 4);
    out->length_bytes = be_get(p + 10, 4);
}

static int check_rows(const struct pack_footer *f, uint64_t items_bytes, struct err *e)
{
    struct content_object items = {.kind = CONTENT_PACK, .size_bytes = items_bytes};
    struct content_item it;
    uint64_t end = 0;

    for (size_t i = 0; i < f->count; i++) {
        pack_footer_item(f, i, &it);
        if (it.offset < end || it.offset % PACK_ALIGN != 0 || !content_fits(&it, &items)) {
            return err_set(e, E_CORRUPT, "row %zu of a pack is invalid", i);
        }
        end = it.offset + it.stored_bytes;
    }
    return 0;
}

int pack_footer_read(struct slice tail, uint64_t pack_bytes, struct pack_footer *out, struct err *e)
{
    struct slice footer;
    struct digest own;
    uint64_t n;
    int rc;

    *out = (struct pack_footer){0};
    if (tail.n < PACK_FOOTER_MIN || tail.n > pack_bytes) {
        return err_set(e, E_CORRUPT, "these %zu bytes are not a pack of the cluster", tail.n);
    }
    rc = pack_footer_bytes(tail, pack_bytes, &n, e);
    if (rc != 0) {
        return rc;
    }
    if (n > tail.n) {
        return err_set(e, E_CORRUPT, "the footer of a pack is truncated");
    }
    footer = slice_from(tail, tail.n - (size_t)n);
    digest_of(slice_first(footer, footer.n - DIGEST_BYTES), &own);
    if (memcmp(own.b, footer.p + footer.n - DIGEST_BYTES, DIGEST_BYTES) != 0 ||
        !slice_starts(footer, MAGIC_KIND)) {
        return err_set(e, E_CORRUPT, "the footer of a pack does not match its checksum");
    }
    if (!slice_starts(footer, MAGIC)) {
        return format_refuse("a pack", slice_first(footer, MAGIC.n), MAGIC, e);
    }
    out->rows = slice_of(footer.p + MAGIC.n, footer.n - PACK_FOOTER_MIN);
    out->count = out->rows.n / PACK_ROW_BYTES;
    return out->rows.n % PACK_ROW_BYTES == 0 && out->count <= PACK_ITEMS_MAX
               ? check_rows(out, pack_bytes - n, e)
               : err_set(e, E_CORRUPT, "the footer of a pack has an invalid length");
}
